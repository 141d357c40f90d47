#!/usr/bin/env python3
"""Little stories of a harbour, for a model that learns letters: any amount, the same bytes for a seed on every machine.

usage: stories.py SEED BYTES >TEXT        whole stories, at least so many bytes

RULES says what may stand for a <symbol>. Symbols of a story's people and things are drawn once per story (CAST), so that
the pronouns of a story fit; those in capitals begin with one."""
import re
import sys

CAST = {
    "animal": "gull crab seal heron badger goat donkey cat dog hen".split(),
    "place": ["lighthouse", "harbour", "market", "mill", "chapel", "old bridge", "boat house", "bakery", "beach", "hill"],
    "thing": ["rope", "lamp", "basket", "bell", "letter", "map", "net", "coat", "loaf of bread", "wheel", "key", "drum"],
    "sort": "small old blue heavy broken pretty strange wooden".split(),
    "task": ["mend the net", "paint the boat", "light the lamp", "carry the fish", "ring the bell", "sweep the yard", "bake the bread",
             "find the key", "row to the island"],
}
PEOPLE = [("he", "his", "him", "Peter Karl Hugo Jonas Emil Otto Anton".split()),
          ("she", "her", "her", "Clara Greta Ida Marta Helen Rosa Julia".split())]
RULES = {
    "story": ["<opening> <want>\n<trouble> <meet>\n<talk> <work>\n<end>"],
    "opening": ["<name> lived near the <place> with <his> <animal>.", "Long ago there was a child called <name>, and <he> had one <animal>.",
                "In a house by the <place> lived <name> and a <animal>."],
    "want": ["<when> <name> had to <task>.", "<when> <his> mother said, \"<name>, you must <task>.\"", "<when> <he> wanted to <task> before noon."],
    "when": ["One morning", "One day", "In the spring", "Every Sunday", "After the storm", "On a cold day", "Before the summer"],
    "trouble": ["But the <sort> <thing> was gone.", "But <his> <sort> <thing> had fallen into the water.", "But somebody had taken the <sort> <thing>.",
                "But the rain came, and the <sort> <thing> was wet."],
    "meet": ["So <he> went to the <place> and met <friend>.", "On the road <he> met <friend>, who was tired.", "There stood <friend> under a tree.",
             "<He> asked <friend>, but <friend> knew nothing."],
    "talk": ["\"Have you seen my <thing>?\" asked <name>.", "\"Where is the <sort> <thing>?\" <he> cried.",
             "\"I cannot <task> without my <thing>,\" said <name>."],
    "work": ["\"<answer>,\" said <friend>. <Deed>", "<Friend> <felt>. \"<answer>.\" <Deed>", "\"<answer>,\" came the answer. <Deed>"],
    "answer": ["Look behind the <place>", "We can look for it together", "Your <animal> has it", "I will help you", "Come with me", "Do not cry"],
    "felt": ["laughed", "smiled", "nodded", "thought for a while", "sat down"],
    "deed": ["They looked here and there, up and down.", "They walked until the sun went down.", "The <animal> ran before them.",
             "They asked the baker and the miller.", "The two of them worked all day long.", "<Friend> helped <him> with both hands."],
    "end": ["At last they found the <thing> near the <place>, and <name> could <task>.", "In the evening the <animal> brought the <thing> home, and all were happy.",
            "The <thing> was in the house all the time! How they laughed.", "<He> gave <friend> some bread, and then they went home.",
            "And from that day on <name> and <friend> were good friends."],
}


class Dice:
    """Knuth's generator of MMIX: Python's own may draw otherwise in another version."""

    def __init__(self, seed):
        self.state = seed

    def pick(self, of):
        self.state = (self.state * 6364136223846793005 + 1442695040888963407) % 2**64
        return of[(self.state >> 33) % len(of)]


def expand(symbol, cast, dice):
    text = cast[symbol] if symbol in cast else dice.pick(RULES[symbol])
    return re.sub("<([A-Za-z])([a-z]*)>", lambda m: grow(m[1], m[2], cast, dice), text)


def grow(first, rest, cast, dice):
    text = expand(first.lower() + rest, cast, dice)
    return text[0].upper() + text[1:] if first.isupper() else text


def story(dice):
    cast = {kind: dice.pick(words) for kind, words in CAST.items()}
    he, his, him, names = dice.pick(PEOPLE)
    name = dice.pick(names)
    friend = dice.pick([n for people in PEOPLE for n in people[3] if n != name])
    return expand("story", {**cast, "he": he, "his": his, "him": him, "name": name, "friend": friend}, dice) + "\n\n"


def main():
    seed, want = int(sys.argv[1]), int(sys.argv[2])
    dice, told, size = Dice(seed), [], 0
    while size < want:
        told.append(story(dice))
        size += len(told[-1])
    sys.stdout.write("".join(told))


main()
