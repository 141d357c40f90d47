/*
 * A planted defect: two threads increment a plain integer. `./run check` must
 * turn red on it, or its race detection does not work.
 */
#include <pthread.h>
#include <stddef.h>

static int counter;

static void *count(void *arg)
{
	for (int i = 0; i < 1000; i++)
		counter++;
	return arg;
}

int main(void)
{
	pthread_t a, b;

	pthread_create(&a, NULL, count, NULL);
	pthread_create(&b, NULL, count, NULL);
	pthread_join(a, NULL);
	pthread_join(b, NULL);
	return counter > 2000;
}
