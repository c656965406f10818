"""Procedurally generated conversations. Every function draws one sample from a random.Random; the same seed gives the same text.

A sample is a `Sample`: the rendered conversation and the skill's name. Answers have one right form, so exact match is meaningful.
Held-out samples differ by their seeds and use names that training never sees.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Any, Callable

import word_lists as W
from chat_format import Message, dumps, render


@dataclass(frozen=True)
class Sample:
    skill: str
    text: str


@dataclass
class World:
    """What samples draw from besides their seed."""

    filler: list[str]  # lines of text
    definitions: list[tuple[str, str, str]]  # word, part of speech, gloss
    names: list[str]


@dataclass(frozen=True)
class Turn:
    """One exchange: what the user says, what the model thinks (thinking mode) and answers."""

    user: str
    think: str
    answer: str


R = random.Random


def a(word: str) -> str:
    return ("an " if word[0] in "aeiou" else "a ") + word


def number(r: R, low: int = 3, high: int = 6) -> str:
    n = r.randint(low, high)
    return str(r.randint(10 ** (n - 1), 10**n - 1))


# ---- short dialogues --------------------------------------------------------------------------------------------------

GREETINGS = {
    "Hello": "Hello! How can I help you?", "Hi": "Hi! What can I do for you?", "Good morning": "Good morning! How can I help you today?",
    "Good evening": "Good evening! How can I help you?", "Hey": "Hey! What can I do for you?", "Hi there": "Hi there! How can I help you?",
    "Hello there": "Hello there! How can I help you?", "Good afternoon": "Good afternoon! What can I do for you?",
}
ABOUT = (
    (("Who are you?", "What are you?", "Please introduce yourself.", "Tell me about yourself.", "What is your name?"),
     "I am a tiny language model that was trained to show how the pagestate runtime works."),
    (("What can you do?", "How can you help me?", "What are you good at?"),
     "I can chat a little, add numbers, copy text, find facts in a text, write JSON and call tools."),
    (("How are you?", "How are you today?", "How do you do?"), "I am fine, thank you. How are you?"),
    (("Are you a human?", "Are you a person?", "Are you real?"), "No, I am a computer program."),
    (("How big are you?", "Are you a large model?"), "I am very small: my weights fit into 24 megabytes."),
    (("Thank you!", "Thanks!", "Thanks a lot!", "Thank you very much."), "You are welcome!"),
    (("Goodbye!", "Bye!", "See you later.", "Good night!"), "Goodbye! Have a nice time."),
    (("Tell me a joke.", "Do you know a joke?", "Make me laugh."),
     "Why did the computer go to the doctor? Because it had a virus."),
    (("I am bored.", "What should I do today?"), "You could read a book, take a walk or call a friend."),
    (("I am sad.", "I feel bad today."), "I am sorry to hear that. I hope you feel better soon."),
    (("I am happy.", "I feel great today."), "That is good to hear!"),
    (("I am tired.", "I did not sleep well."), "Then you should rest a little."),
    (("I am hungry.",), "You could eat some bread and fruit."),
    (("What is your favorite color?",), "I like blue, the color of the sky."),
    (("Do you like music?",), "I cannot hear music, but I like to read about it."),
    (("Can you help me?", "I need help.", "Help me, please."), "Of course. What do you need?"),
    (("Tell me a story.", "Please tell me a short story."),
     "Once there was a small boat that wanted to see the sea. One morning it followed the river, and in the evening it was there."),
    (("Write a poem.", "Please write a short poem."),
     "The night is still, the moon is bright,\nthe river carries silver light,\nand when the morning wakes the town,\nthe stars have laid their lanterns down."),
)


def greeting(r: R, w: World) -> Turn:
    key = r.choice(list(GREETINGS))
    mark = r.choice(["", "!", ".", ""])
    return Turn(key + mark, "The user greets me. I greet back.", GREETINGS[key])


def about(r: R, w: World) -> Turn:
    questions, answer = r.choice(ABOUT)
    q = r.choice(questions)
    return Turn(q, f"The user says: {q} I answer in a friendly way.", answer)


def fact(r: R, w: World) -> Turn:
    kind = r.randrange(10)
    if kind == 0:
        country, city = r.choice(list(W.CAPITALS.items()))
        q = r.choice([f"What is the capital of {country}?", f"Which city is the capital of {country}?", f"Tell me the capital of {country}.",
                      f"Capital of {country}?", f"Do you know the capital of {country}?"])
        return Turn(q, f"The user asks for the capital of {country}. It is {city}.", f"The capital of {country} is {city}.")
    if kind == 1:
        x, y = r.choice(list(W.OPPOSITES.items()))
        if r.random() < 0.5:
            x, y = y, x
        q = r.choice([f"What is the opposite of {x}?", f"Tell me the opposite of {x}.", f"Which word is the opposite of \"{x}\"?"])
        return Turn(q, f"The user asks for the opposite of {x}. It is {y}.", f"The opposite of {x} is {y}.")
    if kind == 2:
        animal, (young, sound, legs) = r.choice(list(W.ANIMALS.items()))
        which = r.randrange(3)
        if which == 0:
            return Turn(f"What is a young {animal} called?", f"The user asks about a young {animal}.", f"A young {animal} is called {a(young)}.")
        if which == 1:
            return Turn(f"What sound does {a(animal)} make?", f"The user asks about the sound of {a(animal)}.", f"{a(animal).capitalize()} {sound}.")
        return Turn(f"How many legs does {a(animal)} have?", f"The user asks about the legs of {a(animal)}.",
                    f"{a(animal).capitalize()} has {W.NUMBER_WORDS[legs]} legs.")
    if kind == 3:
        thing, color = r.choice(list(W.COLOR_OF.items()))
        return Turn(f"What color is {thing}?", f"The user asks for the color of {thing}.", f"{thing.capitalize()} is {color}.")
    if kind == 4:
        i = r.randrange(12)
        if r.random() < 0.5:
            return Turn(f"Which month comes after {W.MONTHS[i]}?", f"The user asks for the month after {W.MONTHS[i]}.",
                        f"{W.MONTHS[(i + 1) % 12]} comes after {W.MONTHS[i]}.")
        return Turn(f"Which month comes before {W.MONTHS[i]}?", f"The user asks for the month before {W.MONTHS[i]}.",
                    f"{W.MONTHS[i - 1]} comes before {W.MONTHS[i]}.")
    if kind == 5:
        i = r.randrange(7)
        if r.random() < 0.5:
            return Turn(f"Which day comes after {W.DAYS[i]}?", f"The user asks for the day after {W.DAYS[i]}.", f"{W.DAYS[(i + 1) % 7]} comes after {W.DAYS[i]}.")
        return Turn(f"Which day comes before {W.DAYS[i]}?", f"The user asks for the day before {W.DAYS[i]}.", f"{W.DAYS[i - 1]} comes before {W.DAYS[i]}.")
    if kind == 6:
        thing, use = r.choice(list(W.USED_FOR.items()))
        return Turn(f"What is {thing} used for?", f"The user asks for the use of {thing}.", f"{thing.capitalize()} is used for {use}.")
    if kind == 7:
        n = r.randrange(21)
        if r.random() < 0.5:
            return Turn(f"Write the number {n} as a word.", f"The user wants {n} as a word.", f"The number {n} is written {W.NUMBER_WORDS[n]}.")
        n = r.randrange(19)
        return Turn(f"Which number comes after {W.NUMBER_WORDS[n]}?", f"After {W.NUMBER_WORDS[n]} comes {W.NUMBER_WORDS[n + 1]}.",
                    f"The number after {W.NUMBER_WORDS[n]} is {W.NUMBER_WORDS[n + 1]}.")
    q, answer = r.choice(list(W.FACTS.items()))
    return Turn(q, f"The user asks: {q} I know this.", answer)


def define(r: R, w: World) -> Turn:
    word, part, gloss = r.choice(w.definitions)
    q = r.choice([f"What does \"{word}\" mean?", f"Define {word}.", f"What is the meaning of {word}?", f"Explain the word {word}."])
    return Turn(q, f"The user asks for the meaning of {word}, {a(part)}.", f"{word.capitalize()} ({part}): {gloss}.")


def _topic(r: R, w: World) -> str:
    """Any word: a listed one, or one from a line of text."""
    if r.random() < 0.4:
        return r.choice(W.THINGS + W.ANIMAL_WORDS + W.PLACES + W.FRUIT)
    words = [x for x in r.choice(w.filler).split(" ") if x.isalpha() and x.islower() and len(x) > 3]
    return r.choice(words) if words else r.choice(W.THINGS)


def topic(r: R, w: World) -> Turn:
    """What to say about something unknown: stay on the topic by naming it."""
    x = _topic(r, w)
    kind = r.randrange(4)
    if kind == 0:
        q = r.choice([f"Tell me about {x}.", f"Tell me about the {x}.", f"Talk about {x}.", f"Say something about {x}."])
        return Turn(q, f"The topic is {x}.", f"I do not know much about {x}, but I would like to hear what you know.")
    if kind == 1:
        return Turn(f"Do you like {x}?", f"The topic is {x}.", f"I have no taste of my own, but {x} sounds nice.")
    if kind == 2:
        q = r.choice([f"I like {x}.", f"I love {x}.", f"I enjoy {x}."])
        return Turn(q, f"The user likes {x}.", f"What do you like about {x}?")
    q = r.choice([f"I need help with {x}.", f"Can you help me with {x}?", f"I have a question about {x}."])
    return Turn(q, f"The topic is {x}.", f"Of course. What do you want to know about {x}?")


# ---- arithmetic -------------------------------------------------------------------------------------------------------

def _add_steps(x: int, y: int) -> str:
    dx, dy = str(x)[::-1], str(y)[::-1]
    carry, parts = 0, []
    for i in range(max(len(dx), len(dy))):
        p, q = int(dx[i]) if i < len(dx) else 0, int(dy[i]) if i < len(dy) else 0
        s = p + q + carry
        parts.append(f"{p}+{q}{'+1' if carry else ''}={s}")
        carry = s // 10
    return ", ".join(parts)


def _subtract_steps(x: int, y: int) -> str:
    dx, dy = str(x)[::-1], str(y)[::-1]
    borrow, parts = 0, []
    for i in range(len(dx)):
        p, q = int(dx[i]), int(dy[i]) if i < len(dy) else 0
        low = p - q - borrow
        lend = low < 0
        parts.append(f"{'1' if lend else ''}{p}-{q}{'-1' if borrow else ''}={low + 10 if lend else low}")
        borrow = int(lend)
    return ", ".join(parts)


def arithmetic(r: R, w: World, small: bool = False) -> Turn:
    kind = r.randrange(3)
    top = 20 if small else 10 ** r.randint(1, 4) - 1
    x, y = r.randint(0, top), r.randint(0, top)
    if kind == 0:
        q = r.choice([f"What is {x} + {y}?", f"Add {x} and {y}.", f"{x} + {y} = ?", f"How much is {x} plus {y}?"])
        return Turn(q, f"{x} + {y}. From the right: {_add_steps(x, y)}. So {x + y}.", f"{x} + {y} = {x + y}")
    if kind == 1:
        x, y = max(x, y), min(x, y)
        q = r.choice([f"What is {x} - {y}?", f"Subtract {y} from {x}.", f"{x} - {y} = ?", f"How much is {x} minus {y}?"])
        return Turn(q, f"{x} - {y}. From the right: {_subtract_steps(x, y)}. So {x - y}.", f"{x} - {y} = {x - y}")
    x, y = r.randint(0, 10), r.randint(0, 10)
    q = r.choice([f"What is {x} * {y}?", f"What is {x} times {y}?", f"Multiply {x} by {y}."])
    return Turn(q, f"{x} times {y} is {x * y}.", f"{x} * {y} = {x * y}")


# ---- copying ----------------------------------------------------------------------------------------------------------

def _text_piece(r: R, w: World) -> str:
    kind = r.randrange(5)
    if kind == 0:
        return " ".join(r.choice(W.THINGS + W.ANIMAL_WORDS + W.COLORS + W.PLACES) for _ in range(r.randint(3, 14)))
    if kind == 1:
        return " ".join(number(r, 1, 6) for _ in range(r.randint(1, 8)))
    if kind == 2:
        return "".join(r.choice("abcdefghijklmnopqrstuvwxyz0123456789") for _ in range(r.randint(4, 20)))
    line = r.choice(w.filler)
    words = line.split(" ")
    n = r.randint(4, 40)
    at = r.randrange(max(1, len(words) - n + 1))
    return " ".join(words[at : at + n])


def copy(r: R, w: World) -> Turn:
    text = _text_piece(r, w)
    q = r.choice(["Repeat this text: ", "Copy the following text exactly: ", "Say exactly this: ", "Write this again: "]) + text
    return Turn(q, "The user wants the same text again.", text)


def spell(r: R, w: World) -> Turn:
    word = r.choice(W.THINGS + W.ANIMAL_WORDS + W.COLORS + W.PLACES + [d[0] for d in r.sample(w.definitions, min(5, len(w.definitions)))])
    return Turn(f"Spell the word {word}.", f"I spell {word} letter by letter.", "-".join(word))


# ---- recall -----------------------------------------------------------------------------------------------------------

def _needle(r: R, w: World, used: set[str]) -> tuple[str, str, str]:
    """(statement, question, answer) with a fresh key."""
    while True:
        kind = r.randrange(5)
        if kind == 0:
            key = r.choice(w.names)
            value = number(r, 4, 6)
            out = (f"The secret code of {key} is {value}.", f"What is the secret code of {key}?", f"The secret code of {key} is {value}.")
        elif kind == 1:
            key = f"{r.choice(W.COLORS)} {r.choice(W.THINGS)}"
            value = r.choice(W.PLACES)
            out = (f"The {key} is in the {value}.", f"Where is the {key}?", f"The {key} is in the {value}.")
        elif kind == 2:
            key = f"{r.choice(W.COLORS)} {r.choice(W.ANIMAL_WORDS)}"
            value = number(r, 4, 6)
            out = (f"The number of the {key} is {value}.", f"What is the number of the {key}?", f"The number of the {key} is {value}.")
        elif kind == 3:
            key = f"project {r.choice(W.ANIMAL_WORDS)}"
            value = f"{r.choice(W.COLORS)}-{r.choice(W.THINGS)}-{r.randint(10, 99)}"
            out = (f"The password for {key} is {value}.", f"What is the password for {key}?", f"The password for {key} is {value}.")
        else:
            key = r.choice(w.names) + " likes"
            value = f"{r.choice(W.COLORS)} {r.choice(W.FRUIT)}"
            out = (f"{key} {value}.", f"What does {key[:-6]} like?", f"{key} {value}.")
        if key not in used:
            used.add(key)
            return out


def recall(r: R, w: World, tokens: int, needles: int | None = None, depth: float | None = None) -> tuple[list[Turn], int]:
    """A text of about `tokens` tokens with facts hidden in it, and questions about them. Returns the turns."""
    budget = int(tokens * 3.3)
    lines: list[str] = []
    size = 0
    while size < budget:
        line = r.choice(w.filler)
        lines.append(line)
        size += len(line) + 1
    used: set[str] = set()
    count = needles or r.randint(1, max(1, min(12, tokens // 120)))
    facts = [_needle(r, w, used) for _ in range(count)]
    for f in facts:
        at = r.randint(0, len(lines)) if depth is None else round(depth * len(lines))
        lines.insert(at, f[0])
    asked = facts if needles else r.sample(facts, min(len(facts), r.randint(1, 6)))
    intro = r.choice(["Read this text:", "Here is a text:", "Remember what this text says:", "Text:"])
    turns = []
    for i, (_, q, answer) in enumerate(asked):
        user = f"{intro}\n" + "\n".join(lines) + f"\n{q}" if i == 0 else q
        turns.append(Turn(user, f"The question is: {q} I look in the text.", answer))
    return turns, count


def key_value(r: R, w: World) -> list[Turn]:
    n = r.randint(2, 30)
    keys: list[str] = []
    while len(keys) < n:
        kind = r.randrange(3)
        k = r.choice(w.names) if kind == 0 else f"{r.choice(W.COLORS)} {r.choice(W.THINGS)}" if kind == 1 else f"item {r.randint(10, 999)}"
        if k not in keys:
            keys.append(k)
    numeric = r.random() < 0.6
    values = [number(r, 2, 5) if numeric else r.choice(W.ANIMAL_WORDS + W.PLACES + W.FRUIT) for _ in keys]
    form = r.choice(["{}: {}", "{} = {}", "- {}: {}"])
    table = "\n".join(form.format(k, v) for k, v in zip(keys, values))
    turns = []
    for i, j in enumerate(r.sample(range(n), min(n, r.randint(1, 5)))):
        q = r.choice([f"What is the value of {keys[j]}?", f"Give me the value of {keys[j]}."])
        user = f"Here is a list:\n{table}\n{q}" if i == 0 else q
        turns.append(Turn(user, f"I look for {keys[j]} in the list.", f"The value of {keys[j]} is {values[j]}."))
    return turns


def story(r: R, w: World) -> list[Turn]:
    """Little worlds: who is where, who has what; the latest statement counts."""
    people = r.sample(w.names, r.randint(2, 4))
    where, has, lines = {}, {}, []
    for _ in range(r.randint(3, 9)):
        p = r.choice(people)
        if r.random() < 0.5:
            where[p] = r.choice(W.PLACES)
            lines.append(f"{p} {r.choice(['went to', 'walked to', 'is now in'])} the {where[p]}.")
        else:
            has[p] = f"{r.choice(W.COLORS)} {r.choice(W.THINGS)}"
            lines.append(f"{p} {r.choice(['took', 'found', 'bought'])} the {has[p]}.")
    options = [(f"Where is {p}?", f"{p} is in the {v}.") for p, v in where.items()] + \
              [(f"What did {p} get last?", f"{p} got the {v}.") for p, v in has.items()]
    turns = []
    for i, (q, answer) in enumerate(r.sample(options, min(len(options), r.randint(1, 3)))):
        turns.append(Turn((" ".join(lines) + " " if i == 0 else "") + q, "I look at the last thing that was said about this.", answer))
    return turns


# ---- JSON by schema ---------------------------------------------------------------------------------------------------

Field = tuple[str, Message, Callable[[R, World], Any], Callable[[Any], str]]
FIELDS: list[Field] = [
    ("name", {"type": "string"}, lambda r, w: r.choice(w.names), lambda v: f"The name is {v}."),
    ("age", {"type": "integer"}, lambda r, w: r.randint(5, 95), lambda v: f"The age is {v}."),
    ("city", {"type": "string"}, lambda r, w: r.choice(W.CITIES), lambda v: f"The city is {v}."),
    ("country", {"type": "string"}, lambda r, w: r.choice(list(W.CAPITALS)), lambda v: f"The country is {v}."),
    ("job", {"type": "string", "enum": W.JOBS[:6]}, lambda r, w: r.choice(W.JOBS[:6]), lambda v: f"The job is {v}."),
    ("hobby", {"type": "string"}, lambda r, w: r.choice(W.HOBBIES), lambda v: f"The hobby is {v}."),
    ("married", {"type": "boolean"}, lambda r, w: r.random() < 0.5, lambda v: "This person is married." if v else "This person is not married."),
    ("children", {"type": "integer"}, lambda r, w: r.randint(0, 9), lambda v: f"The number of children is {v}."),
    ("color", {"type": "string"}, lambda r, w: r.choice(W.COLORS), lambda v: f"The color is {v}."),
    ("price", {"type": "number"}, lambda r, w: round(r.randint(100, 99999) / 100, 2), lambda v: f"The price is {v}."),
    ("object", {"type": "string"}, lambda r, w: r.choice(W.THINGS), lambda v: f"The object is {a(v)}."),
    ("in_stock", {"type": "boolean"}, lambda r, w: r.random() < 0.5, lambda v: "It is in stock." if v else "It is not in stock."),
    ("place", {"type": "string"}, lambda r, w: r.choice(W.PLACES), lambda v: f"The place is the {v}."),
    ("code", {"type": "string"}, lambda r, w: number(r, 4, 6), lambda v: f"The code is {v}."),
    ("tags", {"type": "array", "items": {"type": "string"}}, lambda r, w: r.sample(W.COLORS + W.ANIMAL_WORDS, r.randint(1, 3)),
     lambda v: "The tags are " + " and ".join(v) + "."),
    ("month", {"type": "string"}, lambda r, w: r.choice(W.MONTHS), lambda v: f"The month is {v}."),
]


def json_task(r: R, w: World) -> tuple[Message, Turn]:
    fields = r.sample(FIELDS, r.randint(2, 6))
    values = {name: make(r, w) for name, _, make, _ in fields}
    schema = {"type": "object", "properties": {name: kind for name, kind, _, _ in fields}, "required": [f[0] for f in fields]}
    sentences = [say(values[name]) for name, _, _, say in fields]
    r.shuffle(sentences)
    extra = [f for f in FIELDS if f[0] not in values]
    for name, _, make, say in r.sample(extra, r.randint(0, 2)):
        sentences.insert(r.randint(0, len(sentences)), say(make(r, w)))
    user = r.choice(["Extract the data. ", "Fill in the schema. ", "", "Give me this as JSON. "]) + " ".join(sentences)
    return schema, Turn(user, "The reply needs the fields " + ", ".join(values) + ".", dumps(values))


# ---- tools ------------------------------------------------------------------------------------------------------------

Tool = tuple[str, str, dict[str, tuple[str, str]], Callable[[R, World], tuple[str, dict[str, Any], Any, str]]]


def _t_weather(r: R, w: World) -> tuple[str, dict[str, Any], Any, str]:
    city, unit = r.choice(W.CITIES), r.choice(["celsius", "fahrenheit"])
    temp, sky = r.randint(-10, 35), r.choice(["sunny", "cloudy", "rainy", "windy", "foggy"])
    q = r.choice([f"What is the weather in {city} in {unit}?", f"How is the weather in {city}? Use {unit}."])
    return q, {"location": city, "unit": unit}, {"temperature": temp, "sky": sky}, f"It is {sky} in {city}, with {temp} degrees {unit}."


def _t_time(r: R, w: World) -> tuple[str, dict[str, Any], Any, str]:
    city, time = r.choice(W.CITIES), f"{r.randint(0, 23):02d}:{r.randint(0, 59):02d}"
    return r.choice([f"What time is it in {city}?", f"Tell me the time in {city}."]), {"city": city}, {"time": time}, f"It is {time} in {city}."


def _t_message(r: R, w: World) -> tuple[str, dict[str, Any], Any, str]:
    to, text = r.choice(w.names), r.choice(["see you at the ", "I am in the ", "please come to the ", "meet me in the "]) + r.choice(W.PLACES)
    return f"Send a message to {to}: {text}", {"to": to, "text": text}, {"status": "sent"}, f"The message to {to} was sent."


def _t_alarm(r: R, w: World) -> tuple[str, dict[str, Any], Any, str]:
    h, m = r.randint(0, 23), r.randint(0, 59)
    return f"Set an alarm for {h:02d}:{m:02d}.", {"hour": h, "minute": m}, {"ok": True}, f"The alarm is set for {h:02d}:{m:02d}."


def _t_calculate(r: R, w: World) -> tuple[str, dict[str, Any], Any, str]:
    x, y, op = r.randint(10, 9999), r.randint(10, 9999), r.choice("+-*")
    value = {"+": x + y, "-": x - y, "*": x * y}[op]
    return f"Use the calculator: {x} {op} {y}", {"expression": f"{x} {op} {y}"}, {"result": value}, f"{x} {op} {y} = {value}"


def _t_search(r: R, w: World) -> tuple[str, dict[str, Any], Any, str]:
    topic = f"{r.choice(W.COLORS)} {r.choice(W.ANIMAL_WORDS)}"
    n = r.randint(1, 9)
    found = f"The {topic} lives near the {r.choice(W.PLACES)}."
    return f"Search for {topic} and give me {n} results.", {"query": topic, "limit": n}, {"results": [found]}, found


def _t_order(r: R, w: World) -> tuple[str, dict[str, Any], Any, str]:
    item, n, code = r.choice(W.FRUIT), r.randint(2, 40), number(r, 4, 5)
    return f"Order {n} {item}.", {"item": item, "count": n}, {"order": code}, f"I ordered {n} {item}. The order number is {code}."


def _t_light(r: R, w: World) -> tuple[str, dict[str, Any], Any, str]:
    room, on = r.choice(W.PLACES), r.random() < 0.5
    return f"Turn {'on' if on else 'off'} the light in the {room}.", {"room": room, "on": on}, {"ok": True}, f"The light in the {room} is {'on' if on else 'off'}."


def _t_lookup(r: R, w: World) -> tuple[str, dict[str, Any], Any, str]:
    name, phone = r.choice(w.names), number(r, 6, 6)
    return r.choice([f"What is the phone number of {name}?", f"Find the phone number of {name}."]), {"name": name}, {"phone": phone}, f"The phone number of {name} is {phone}."


TOOLS: list[Tool] = [
    ("get_weather", "Get the weather of a place", {"location": ("string", "City"), "unit": ("string", "celsius or fahrenheit")}, _t_weather),
    ("get_time", "Get the local time", {"city": ("string", "City")}, _t_time),
    ("send_message", "Send a message to a person", {"to": ("string", "Receiver"), "text": ("string", "Text")}, _t_message),
    ("set_alarm", "Set an alarm", {"hour": ("integer", "0 to 23"), "minute": ("integer", "0 to 59")}, _t_alarm),
    ("calculator", "Evaluate an expression", {"expression": ("string", "Expression")}, _t_calculate),
    ("search", "Search the web", {"query": ("string", "What to search"), "limit": ("integer", "Number of results")}, _t_search),
    ("order", "Order goods", {"item": ("string", "What"), "count": ("integer", "How many")}, _t_order),
    ("set_light", "Switch a light", {"room": ("string", "Room"), "on": ("boolean", "New state")}, _t_light),
    ("find_phone", "Find a phone number", {"name": ("string", "Person")}, _t_lookup),
]


def _made_up(r: R, w: World) -> Tool:
    """A tool that exists in one conversation only: its name and parameters must be read from the prompt."""
    verb, thing = r.choice(W.VERBS), r.choice(W.THINGS)
    keys = r.sample(["color", "place", "person", "number", "owner", "level", "target"], r.randint(1, 3))

    def run(r: R, w: World) -> tuple[str, dict[str, Any], Any, str]:
        args: dict[str, Any] = {}
        said = []
        for k in keys:
            args[k] = (r.choice(W.COLORS) if k == "color" else r.choice(W.PLACES) if k in ("place", "target") else
                       r.choice(w.names) if k in ("person", "owner") else r.randint(1, 999))
            said.append(f"{k} {args[k]}")
        return (f"Please {verb} the {thing} with {', '.join(said)}.", args, {"status": "done"}, f"Done: {verb} {thing}.")

    return (f"{verb}_{thing}", f"{verb.capitalize()} the {thing}", {k: ("integer" if k in ("number", "level") else "string", k.capitalize()) for k in keys}, run)


def _schema(tool: Tool) -> Message:
    name, description, fields, _ = tool
    return {"name": name, "description": description, "parameters": {
        "type": "object", "properties": {k: {"type": t, "description": d} for k, (t, d) in fields.items()}, "required": list(fields)}}


def tool_task(r: R, w: World) -> Sample:
    offered = r.sample(TOOLS, r.randint(1, 3))
    if r.random() < 0.5:
        offered[r.randrange(len(offered))] = _made_up(r, w)
    messages: list[Message] = []
    if r.random() < 0.5:
        messages.append({"role": "system", "content": r.choice(SYSTEMS)})
    for _ in range(r.choice([1, 1, 2])):
        if r.random() < 0.12:
            t = greeting(r, w) if r.random() < 0.5 else about(r, w)
            messages += [{"role": "user", "content": t.user}, {"role": "assistant", "content": t.answer, "reasoning": "No tool is needed."}]
            continue
        tool = r.choice(offered)
        q, args, result, answer = tool[3](r, w)
        messages += [
            {"role": "user", "content": q},
            {"role": "assistant", "content": "", "reasoning": f"I call {tool[0]}.", "calls": [(tool[0], args)]},
            {"role": "tool", "content": dumps(result)},
            {"role": "assistant", "content": answer, "reasoning": "I have the result."},
        ]
    if r.random() < 0.15:
        while messages[-1]["role"] != "assistant" or not messages[-1].get("calls"):
            if len(messages) <= 3:
                break
            messages.pop()
    return Sample("tools", render(messages, tools=[_schema(t) for t in offered], effort=_effort(r)))


# ---- conversations ----------------------------------------------------------------------------------------------------

SYSTEMS = ("You are a helpful assistant.", "You are a friendly assistant.", "Answer briefly.", "You are a careful assistant.", "Be kind and short.",
           "You help the user.")


def _effort(r: R) -> int | None:
    return r.choice([50, 75, 75, 100]) if r.random() < 0.5 else None


def talk(r: R, skill: str, turns: list[Turn], schema: Message | None = None, effort: int | None = -1, plain: bool = False) -> Sample:
    """Turns -> one conversation; a system message now and then."""
    effort = _effort(r) if effort == -1 else effort
    messages: list[Message] = []
    if not plain and r.random() < 0.3:
        messages.append({"role": "system", "content": r.choice(SYSTEMS)})
    for t in turns:
        messages += [{"role": "user", "content": t.user}, {"role": "assistant", "content": t.answer, "reasoning": t.think}]
    return Sample(skill, render(messages, schema=schema, effort=effort))


def introduce(r: R, w: World) -> list[Turn]:
    """Something the user says about himself, other talk, then a question about it."""
    name, city, job, color = r.choice(w.names), r.choice(W.CITIES), r.choice(W.JOBS), r.choice(W.COLORS)
    options = [
        (r.choice([f"My name is {name}.", f"I am {name}.", f"Hello, I am {name}."]), f"Nice to meet you, {name}!", "What is my name?", f"Your name is {name}."),
        (f"I live in {city}.", f"{city} is a nice place.", "Where do I live?", f"You live in {city}."),
        (f"I am {a(job)}.", f"It must be interesting to be {a(job)}.", "What is my job?", f"You are {a(job)}."),
        (f"My favorite color is {color}.", f"I like {color} too.", "What is my favorite color?", f"Your favorite color is {color}."),
    ]
    picked = r.sample(options, r.randint(1, 3))
    turns = [Turn(o[0], "The user tells me something. I answer kindly.", o[1]) for o in picked]
    for _ in range(r.randint(0, 2)):
        turns.append(r.choice([about, fact])(r, w))
    r.shuffle(picked)
    turns += [Turn(o[2], "The user told me this before.", o[3]) for o in picked]
    return turns


def chat(r: R, w: World) -> Sample:
    kind = r.random()
    if kind < 0.3:
        return talk(r, "chat", introduce(r, w))
    turns: list[Turn] = [greeting(r, w)] if r.random() < 0.5 else []
    while not turns or r.random() < 0.6:
        turns.append(r.choices([about, fact, define, topic, lambda r, w: arithmetic(r, w, small=True), copy, spell], [3, 5, 2, 3, 1, 1, 1])[0](r, w))
    return talk(r, "chat", turns)


def make(skill: str, r: R, w: World, tokens: int = 0) -> Sample:
    """One sample; `tokens` is the wanted length of a recall text."""
    if skill == "chat":
        return chat(r, w)
    if skill == "fact":
        return talk(r, "fact", [fact(r, w)])
    if skill == "arithmetic":
        if r.random() < 0.8:
            return talk(r, "arithmetic", [arithmetic(r, w)], effort=r.choice([50, 75, 100]))
        return talk(r, "arithmetic", [arithmetic(r, w, small=True) for _ in range(r.randint(1, 3))], effort=None)
    if skill == "copy":
        return talk(r, "copy", [copy(r, w) for _ in range(r.randint(1, 3))])
    if skill == "key_value":
        return talk(r, "key_value", key_value(r, w))
    if skill == "story":
        return talk(r, "story", story(r, w))
    if skill == "json":
        schema, turn = json_task(r, w)
        return talk(r, "json", [turn], schema=schema)
    if skill == "tools":
        return tool_task(r, w)
    if skill == "recall":
        turns, _ = recall(r, w, tokens)
        return talk(r, "recall", turns)
    raise ValueError(skill)


SKILLS = ("chat", "fact", "arithmetic", "copy", "key_value", "story", "json", "tools", "recall")


def needle(seed: int, w: World, tokens: int, depth: float) -> Sample:
    """One fact at a given depth of a text of a given length: the recall test."""
    r = random.Random(f"needle/{seed}/{tokens}/{depth}")
    turns, _ = recall(r, w, tokens, needles=1, depth=depth)
    return talk(r, f"needle", turns, effort=None, plain=True)
