"""Small closed sets of words and facts that the skill generator draws from. Hand-written; nothing here is copied from a data set."""

import random

NAMES = """Anna Ben Clara David Emma Felix Grace Henry Iris Jack Karen Leo Maria Noah Olga Paul Quinn Rosa Sam Tina Uma Victor Wendy Xavier Yara Zoe
Alice Bruno Cora Dora Erik Fiona George Hannah Ivan Julia Kevin Laura Martin Nina Oscar Petra Robert Sara Tom Ursula Vera Walter Adam Bella Carl Diana
Edgar Flora Gina Hugo Ida John Kate Lena Max Nora Otto Peter Ruth Simon Thea Vincent""".split()
_ONSETS = "B Br C Ch D Dr F G Gl H J K L M N P Q R S St T Th V W Z".split()
_MIDDLES = "a ai e ei i o u ari eli ona ima ula osa enda ila ora anti esto".split()
_ENDS = "ba del dra fin gus ka len lia lo mar mon na nis ra rick sa ta tor va vin za x ne l s".split()


def invented_names(count: int, seed: int = 1) -> list[str]:
    """Names that nobody has: whoever meets enough of them learns to copy a name instead of recognizing one."""
    r = random.Random(f"names/{seed}")
    out: dict[str, None] = {}
    while len(out) < count:
        name = r.choice(_ONSETS) + r.choice(_MIDDLES) + r.choice(_ENDS)
        if name not in HELD_OUT_NAMES and name not in NAMES:
            out[name] = None
    return list(out)


HELD_OUT_NAMES = "Amber Boris Celia Damian Elsa Frank Gloria Hector Irma Jonas Lydia Marcus".split()

CAPITALS = {
    "France": "Paris", "Germany": "Berlin", "Italy": "Rome", "Spain": "Madrid", "Portugal": "Lisbon", "Austria": "Vienna",
    "Greece": "Athens", "Poland": "Warsaw", "Norway": "Oslo", "Sweden": "Stockholm", "Finland": "Helsinki", "Denmark": "Copenhagen",
    "Ireland": "Dublin", "Belgium": "Brussels", "Hungary": "Budapest", "Russia": "Moscow", "Turkey": "Ankara", "Egypt": "Cairo",
    "Kenya": "Nairobi", "Japan": "Tokyo", "China": "Beijing", "India": "New Delhi", "Thailand": "Bangkok", "Canada": "Ottawa",
    "Mexico": "Mexico City", "Cuba": "Havana", "Brazil": "Brasilia", "Peru": "Lima", "Chile": "Santiago", "Argentina": "Buenos Aires",
    "Australia": "Canberra", "England": "London", "Scotland": "Edinburgh", "Iceland": "Reykjavik", "Switzerland": "Bern",
}
CITIES = sorted(set(CAPITALS.values()) | {"Hamburg", "Milan", "Boston", "Chicago", "Denver", "Lyon", "Kyoto", "Sydney", "Toronto", "Geneva", "Porto", "Bergen"})

OPPOSITES = {
    "hot": "cold", "big": "small", "tall": "short", "fast": "slow", "light": "dark", "day": "night", "up": "down", "left": "right",
    "early": "late", "open": "closed", "full": "empty", "happy": "sad", "hard": "soft", "rich": "poor", "old": "young", "wet": "dry",
    "strong": "weak", "good": "bad", "high": "low", "near": "far", "clean": "dirty", "loud": "quiet", "true": "false", "first": "last",
    "begin": "end", "buy": "sell", "win": "lose", "push": "pull", "ask": "answer", "inside": "outside", "north": "south", "east": "west",
}
ANIMALS = {  # young, sound, legs
    "dog": ("puppy", "barks", 4), "cat": ("kitten", "meows", 4), "cow": ("calf", "moos", 4), "sheep": ("lamb", "bleats", 4),
    "horse": ("foal", "neighs", 4), "hen": ("chick", "clucks", 2), "duck": ("duckling", "quacks", 2), "pig": ("piglet", "grunts", 4),
    "lion": ("cub", "roars", 4), "goat": ("kid", "bleats", 4), "owl": ("owlet", "hoots", 2), "frog": ("tadpole", "croaks", 4),
    "wolf": ("pup", "howls", 4), "bear": ("cub", "growls", 4), "goose": ("gosling", "honks", 2),
}
COLOR_OF = {
    "the sky": "blue", "grass": "green", "snow": "white", "coal": "black", "a lemon": "yellow", "blood": "red", "an orange": "orange",
    "milk": "white", "a ripe banana": "yellow", "chocolate": "brown", "the sea": "blue", "a strawberry": "red", "an elephant": "gray",
}
MONTHS = "January February March April May June July August September October November December".split()
DAYS = "Monday Tuesday Wednesday Thursday Friday Saturday Sunday".split()
NUMBER_WORDS = "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen seventeen eighteen nineteen twenty".split()
USED_FOR = {
    "a knife": "cutting", "a pen": "writing", "a broom": "sweeping the floor", "a key": "opening a lock", "a lamp": "giving light",
    "a clock": "telling the time", "a boat": "traveling on water", "a needle": "sewing", "a hammer": "driving nails", "an oven": "baking",
    "a map": "finding the way", "a ladder": "climbing up", "an umbrella": "keeping off the rain", "a bed": "sleeping", "a spoon": "eating soup",
    "a bridge": "crossing a river", "soap": "washing", "a thermometer": "measuring temperature", "a camera": "taking pictures",
}
FACTS = {
    "How many days are in a week?": "There are seven days in a week.",
    "How many months are in a year?": "There are twelve months in a year.",
    "How many hours are in a day?": "There are twenty-four hours in a day.",
    "How many minutes are in an hour?": "There are sixty minutes in an hour.",
    "What is frozen water called?": "Frozen water is called ice.",
    "What do bees make?": "Bees make honey.",
    "Where does the sun rise?": "The sun rises in the east.",
    "Where does the sun set?": "The sun sets in the west.",
    "What do we breathe?": "We breathe air.",
    "How many legs does a spider have?": "A spider has eight legs.",
    "How many legs does an insect have?": "An insect has six legs.",
    "How many sides does a triangle have?": "A triangle has three sides.",
    "How many sides does a square have?": "A square has four sides.",
    "What is the largest ocean?": "The largest ocean is the Pacific Ocean.",
    "What planet do we live on?": "We live on the planet Earth.",
    "What season comes after winter?": "Spring comes after winter.",
    "What season comes after summer?": "Autumn comes after summer.",
    "What is the first letter of the alphabet?": "The first letter of the alphabet is A.",
    "What is the last letter of the alphabet?": "The last letter of the alphabet is Z.",
    "Who wrote Hamlet?": "Hamlet was written by William Shakespeare.",
    "What is bread made from?": "Bread is made from flour, water and yeast.",
    "What do plants need to grow?": "Plants need light, water and air to grow.",
    "At what temperature does water boil?": "Water boils at 100 degrees Celsius.",
    "At what temperature does water freeze?": "Water freezes at 0 degrees Celsius.",
    "What gives light in the night sky?": "The moon and the stars give light in the night sky.",
    "What is a baby's first food?": "A baby's first food is milk.",
    "What is a computer?": "A computer is a machine that stores and processes information.",
    "What is a dictionary?": "A dictionary is a book that explains the meaning of words.",
    "What is Linux?": "Linux is a free operating system kernel.",
    "What is Debian?": "Debian is a free operating system that is built by volunteers.",
}

COLORS = "red blue green yellow white black brown gray silver golden purple orange pink violet amber crimson".split()
THINGS = """box key lamp book cup chair table ring coin clock bottle basket hammer mirror pencil ticket letter parcel candle blanket bucket
violin drum wagon ladder helmet compass lantern anchor statue feather button ribbon pocket garden bridge tower engine window""".split()
PLACES = """kitchen garden cellar attic library station market harbor museum school office forest castle barn hall tower church
workshop stable theater hospital airport bakery valley""".split()
ANIMAL_WORDS = "falcon tiger otter badger raven salmon beaver panther lizard turtle eagle rabbit spider dolphin camel monkey squirrel walrus heron weasel".split()
FRUIT = "apples pears plums cherries lemons melons grapes figs dates oranges peaches berries nuts onions carrots potatoes".split()
JOBS = "baker teacher doctor painter farmer pilot sailor writer singer lawyer carpenter gardener tailor miner nurse engineer cook judge".split()
HOBBIES = "reading chess swimming painting dancing sailing cooking hiking fishing singing running gardening".split()
VERBS = "open close read carry paint wash move fix count hide lift sell bring build clean find".split()
