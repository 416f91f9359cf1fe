"""Laws of the embedded corpus, checked before it is written: articles, agreement, splits."""

from __future__ import annotations

import re
from functools import cache
from itertools import pairwise

from foveate.data.words import words as cut
from grammar.clauses import split_of, verb_name
from grammar.lexicon import lexicon
from grammar.pairs import SyntheticPair

words = cache(cut)
LEXICON = lexicon()
NOUNS = {noun.english[0]: noun for noun in LEXICON.nouns(" ".join(LEXICON.named))}
ADJECTIVES = {adjective.english: adjective for adjective in LEXICON.adjectives}
VERBS = {verb_name(verb): verb for verbs in LEXICON.verbs.values() for verb in verbs}
NOUN_FORMS = {form: (noun, n) for noun in NOUNS.values() for n, form in enumerate(noun.english)}
ASPIRATED = {
    *("héros", "hibou", "hibous", "hiboux", "hérisson", "hérissons", "haricot", "haricots"),
    *("harpe", "harpes", "hache", "haches", "hameau", "hameaux", "haine", "honte", "hongrie"),
    *("haut", "haute", "hauts", "hautes", "hongrois", "hongroise", "hongroises"),
    *("hollandais", "hollandaise", "hollandaises", "huit", "onze"),
}
ELIDED = {"l'", "d'", "n'", "j'", "qu'", "m'", "s'"}
FULL = {"le", "la", "de", "ne", "je", "que", "me", "se", "ce", "ma", "sa"}


def vowel(text: str) -> bool:
    """Whether French elides before the word, by a list of its own."""
    return text.lower() not in ASPIRATED and bool(re.match("[aeiouhyâàéèêîôûœ]", text.lower()))


def words_lengths_and_marks(train: list[SyntheticPair]) -> None:
    """Words lengths and marks."""
    for pair in train:
        source, target = words(pair.source), words(pair.target)
        assert 3 <= len(source) <= 25, pair
        assert 3 <= len(target) <= 25, pair
        assert source[-1] == target[-1]
        assert source[-1] in ".?"
        assert not pair.source[0].islower()
        assert not pair.target[0].islower()
        assert not re.search(r"  |' | [.,]|-\b-|:", pair.source + pair.target), pair


def alignments_are_in_range_and_leave_nothing_out(train: list[SyntheticPair]) -> None:
    """Alignments are in range and leave nothing out."""
    for pair in train:
        source, target = words(pair.source), words(pair.target)
        assert list(pair.alignment) == sorted(set(pair.alignment))
        assert {j for _, j in pair.alignment} == set(range(len(target))), pair
        missing = set(range(len(source))) - {i for i, _ in pair.alignment}
        assert {source[i] for i in missing} <= {"and"}, pair  # two hundred and one: deux cent un


def french_elides_and_contracts(train: list[SyntheticPair]) -> None:
    """French elides and contracts."""
    for pair in train:
        target = [text.lower() for text in words(pair.target)]
        for item, two in pairwise(target):
            assert (item, two) not in {("de", "le"), ("de", "les"), ("à", "le"), ("à", "les")}
            if item in FULL:
                assert not vowel(two), pair
            if item in ELIDED:
                assert vowel(two), pair
            assert item != "si" or two not in ("il", "ils"), pair


def english_articles(train: list[SyntheticPair]) -> None:
    """English articles."""
    consonants = "european|university|uni|use"
    for pair in train:
        for article, after in re.findall(r"\b(an?) (\S+)", pair.source.lower()):
            sounds = after[0] in "aeiou" and not re.match(consonants, after)
            assert (article == "an") == (sounds or after == "honest"), pair


def adjectives_agree_with_their_nouns(train: list[SyntheticPair]) -> None:
    """Adjectives agree with their nouns."""
    checked = 0
    for pair in train:
        source, target = words(pair.source.replace("'s", "")), words(pair.target)
        partners = {i: {target[j] for k, j in pair.alignment if k == i} for i in range(len(source))}
        for i, text in enumerate(source[:-1]):
            if text not in ADJECTIVES.keys() - VERBS.keys() or source[i + 1] not in NOUN_FORMS:
                continue
            noun, number = NOUN_FORMS[source[i + 1]]
            adjective = ADJECTIVES[text]
            right = {adjective.french[noun.gender][number]}
            if not noun.gender and not number and vowel(noun.french[0]):
                right = {adjective.liaison}
            assert partners[i] == right, pair
            assert noun.french[number] in partners[i + 1], pair
            checked += 1
    assert checked > 2000


def articles_agree_with_the_noun_after_them(train: list[SyntheticPair]) -> None:
    """Articles agree with the noun after them."""
    forms: dict[str, set[tuple[int, int]]] = {}
    for noun in NOUNS.values():
        for number, form in enumerate(noun.french):
            forms.setdefault(form, set()).add((noun.gender, number))
    for verb in VERBS.values():  # les lit: the beds, or reads them
        for form in (*verb.present, *verb.future):
            forms.pop(form, None)
    features = {
        **{"un": (0, 0), "une": (1, 0), "le": (0, 0), "la": (1, 0), "du": (0, 0), "au": (0, 0)},
        **{"ce": (0, 0), "cet": (0, 0), "cette": (1, 0), "ma": (1, 0), "sa": (1, 0)},
    }
    many = {"les", "des", "aux", "ces", "mes", "ses", "nos", "vos", "leurs", "plusieurs"}
    for pair in train:
        target = [text.lower() for text in words(pair.target)]
        for before, (item, two) in zip(["", *target], pairwise(target), strict=False):
            if item in features and two in forms and before != "et":
                assert features[item] in forms[two], pair
            if item in many and two in forms:
                assert any(number for _, number in forms[two]), pair


def participles_with_etre_agree(train: list[SyntheticPair]) -> None:
    """Participles with etre agree."""
    moves = {v.participle[0][0] for vs in LEXICON.verbs.values() for v in vs if v.etre}
    feminines = {"elle": "e", "elles": "es"}
    checked = 0
    for pair in train:
        target = [text.lower() for text in words(pair.target)]
        for i, text in enumerate(target):
            after = [t for t in target[i + 1 : i + 4] if t not in ("s'", "se")]
            if text in feminines and after[0] in ("est", "sont") and len(after) > 1:
                stem = after[1].rstrip("s").removesuffix("e")
                if stem in moves:
                    assert after[1] == stem + feminines[text], pair
                    checked += 1
    assert checked > 50


def negated_indefinite_objects_take_de(train: list[SyntheticPair]) -> None:
    """Negated indefinite objects take de."""
    for pair in train:
        assert not re.search(r"\b(pas|jamais|plus) (un|une) ", pair.target), pair
        assert len(re.findall(r"\b(ne|n)\b", pair.target)) == len(
            re.findall(r"\bnot\b|\bnever\b|\bno longer\b|\bcannot\b", pair.source)
        ), pair


def splits_are_distinct(
    train: list[SyntheticPair], held_out: dict[str, list[SyntheticPair]]
) -> None:
    """Splits are distinct."""
    everything = [*train, *held_out["valid"], *held_out["test"]]
    assert len({pair.source for pair in everything}) == len(everything)


def combinations(pair: SyntheticPair) -> set[tuple[str, str]]:
    """Every adjective with the noun after it, and the splits of all that may be combined."""
    source = words(pair.source)
    return {
        (item, NOUN_FORMS[two.removesuffix("'s")][0].english[0])
        for item, two in pairwise(source)
        if item in ADJECTIVES and two.removesuffix("'s") in NOUN_FORMS
    }


def possible(pair: SyntheticPair) -> set[str]:
    """The splits of any adjective or verb of the sentence with any of its nouns."""
    source = {text.removesuffix("'s") for text in words(pair.source)}
    nouns = {NOUN_FORMS[text][0].english[0] for text in source & NOUN_FORMS.keys()}
    messages = [n for n, v in VERBS.items() if source & {v.base, v.third, v.past}]
    return {
        split_of(item, noun)
        for item in [*messages, *(source & ADJECTIVES.keys())]
        for noun in nouns
    }


def training_never_shows_what_is_held_out(
    train: list[SyntheticPair], held_out: dict[str, list[SyntheticPair]]
) -> None:
    """Training never shows what is held out."""
    for pair in train:
        assert {split_of(*c) for c in combinations(pair)} <= {"train"}, pair
    for split, made in held_out.items():
        for pair in made:
            assert {split_of(*c) for c in combinations(pair)} <= {"train", split}, pair
            assert split in possible(pair), pair


def every_word_is_in_training(train: list[SyntheticPair]) -> None:
    """Every word is in training."""
    seen = {text.removesuffix("'s") for pair in train for text in words(pair.source)}
    lower = {text.lower() for text in seen}
    assert not {n for n, noun in NOUNS.items() if not set(noun.english) & lower}
    assert not ADJECTIVES.keys() - seen - {text.capitalize() for text in lower} - lower
    assert not {n for n, v in VERBS.items() if not {v.base, v.third, v.past} & lower - {"bes"}}
    assert not {name for names in LEXICON.names for name in names} - seen
    assert not {english.split()[-1] for english, _ in LEXICON.places} - seen
    assert not {name for name, _ in (*LEXICON.months,)} - seen
    assert len(NOUNS) + len(ADJECTIVES) + len(VERBS) > 400


LAWS = (
    words_lengths_and_marks,
    alignments_are_in_range_and_leave_nothing_out,
    french_elides_and_contracts,
    english_articles,
    adjectives_agree_with_their_nouns,
    articles_agree_with_the_noun_after_them,
    participles_with_etre_agree,
    negated_indefinite_objects_take_de,
    every_word_is_in_training,
)


def check(train: list[SyntheticPair], held_out: dict[str, list[SyntheticPair]]) -> None:
    """Raise ``AssertionError`` with the first pair that breaks a law."""
    for law in LAWS:
        law(train)
    splits_are_distinct(train, held_out)
    training_never_shows_what_is_held_out(train, held_out)
