/*
 * Gradients that are averaged while the rest is computed: a line through points,
 * by ranks that have different numbers of them.
 *
 *     collrun -n 3 example_average
 */
#include <coll/ddp.h>
#include <stdio.h>

int main(void)
{
	float slope = 0, shift = 0, idle = 0, *grads;
	coll_ddp_param params[] = {
	        {.name = "slope", .dim_count = 1, .dims = {1}, .weights = &slope},
	        {.name = "shift", .dim_count = 1, .dims = {1}, .weights = &shift},
	        {.name = "idle", .dim_count = 1, .dims = {1}, .weights = &idle}, /* no step uses it */
	};
	coll_ddp_config cfg = COLL_DDP_CONFIG_INIT;
	char problem[256] = "";
	coll_comm *comm;
	coll_ddp *ddp;
	coll_status status;
	int rank, steps, more = 1;

	if (coll_comm_create(&comm, NULL) != COLL_OK) {
		fprintf(stderr, "average: %s\n", coll_last_error(NULL)->message);
		return 1;
	}
	rank = coll_comm_rank(comm);
	cfg.uneven = 1; /* ranks may run out of points */
	cfg.problem = problem;
	cfg.problem_bytes = sizeof(problem);
	status = coll_ddp_create(&ddp, params, 3, &cfg, comm);
	if (status != COLL_OK) {
		fprintf(stderr, "average: %s\n", problem);
		return 1;
	}
	grads = coll_ddp_grads(ddp); /* of all parameters, coll_ddp_count() elements */
	status = coll_ddp_share(ddp, 0);
	steps = 2000 + 100 * rank;
	for (int i = 0; status == COLL_OK && i < steps; i++) {
		float x = (float)((i * 7 + rank) % 11) / 10, error = slope * x + shift - (3 * x + 1);

		status = coll_ddp_begin(ddp, 1);
		grads[coll_ddp_offset(ddp, 1)] = error;
		if (status == COLL_OK)
			status = coll_ddp_ready(ddp, 1); /* may be sent from now on */
		grads[coll_ddp_offset(ddp, 0)] = error * x;
		if (status == COLL_OK)
			status = coll_ddp_ready(ddp, 0);
		if (status == COLL_OK)
			status = coll_ddp_wait(ddp);
		slope -= 0.1f * grads[coll_ddp_offset(ddp, 0)];
		shift -= 0.1f * grads[coll_ddp_offset(ddp, 1)];
		coll_ddp_zero(ddp);
	}
	/* Asked of the last step: what was never ready. */
	for (int i = 0; status == COLL_OK && i < coll_ddp_unused_count(ddp); i++)
		printf("rank %d did not use %s\n", rank, coll_ddp_unused(ddp, i));
	/* Out of points: take part in the steps of those who have some, with gradients of zero. */
	while (status == COLL_OK && (status = coll_ddp_join(ddp, &more)) == COLL_OK && more) {
		slope -= 0.1f * grads[coll_ddp_offset(ddp, 0)];
		shift -= 0.1f * grads[coll_ddp_offset(ddp, 1)];
		coll_ddp_zero(ddp);
	}
	if (status != COLL_OK)
		fprintf(stderr, "average: %s\n", coll_ddp_last_error(ddp));
	else
		printf("rank %d: %.3f x + %.3f; %zu gradients\n", rank, (double)slope, (double)shift,
		       coll_ddp_count(ddp));
	coll_ddp_destroy(&ddp);
	return coll_comm_destroy(&comm) == COLL_OK && status == COLL_OK ? 0 : 1;
}
