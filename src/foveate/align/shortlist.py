"""Learn a shortlist (`foveate.tasks.shortlist`) from the training data, by IBM Model 1."""

from collections.abc import Sequence
from itertools import chain

import numpy as np
import torch
from numpy.typing import NDArray

from foveate.align.ibm import Model1, WordIds
from foveate.data.corpus import sample
from foveate.data.tokenizer import EOS
from foveate.tasks.base import Batch
from foveate.tasks.shortlist import Shortlist
from foveate.tasks.text import Ids, TextToText

PAIRS = 200_000  # of the training data that Model 1 sees at most
MEASURED = 1000  # held-out pairs by which a shortlist is measured


def learn(task: TextToText[Batch], often: int, likely: int, seed: int = 0) -> Shortlist:
    """The shortlist of a task with text on both sides, from its training data."""
    corpus = task.corpus("train")
    some = corpus.take(sample(len(corpus), PAIRS, seed))
    sides = zip(task.tokenizers, (some.sources, some.targets), strict=True)
    sources, targets = (tokenizer.encode_ids(list(side)) for tokenizer, side in sides)
    sizes = [tokenizer.vocab_size for tokenizer in task.tokenizers]
    counts = np.bincount(np.fromiter(chain(*targets), dtype=np.int64), minlength=sizes[1])
    others = np.argsort(-counts[EOS + 1 :], kind="stable")[:often] + EOS + 1
    first = np.concatenate((np.arange(EOS + 1), others))  # the special ones keep their ids
    return Shortlist(
        torch.from_numpy(first), torch.from_numpy(partners(sources, targets, sizes[0], likely))
    )


def partners(
    sources: Sequence[Ids], targets: Sequence[Ids], vocab_size: int, most: int
) -> NDArray[np.int64]:
    """The ``most`` target ids of the highest t(· | s) for each source id (V, K); 0 where fewer."""
    pairs = [
        ([str(i) for i in s], [str(i) for i in t]) for s, t in zip(sources, targets, strict=True)
    ]
    aligner = Model1(Model1.Config.parse({"kind": "ibm1", "lowercase": False}))
    aligner.train(pairs)
    numbers: WordIds = aligner.numbers
    of_source = np.array([-1, *map(int, numbers.source)])  # number -> id; NULL has none
    of_target = np.array([*map(int, numbers.target)])
    keys, p = aligner.lexicon.keys, aligner.lexicon.probability[:-1]
    source, target = of_source[keys // numbers.width], of_target[keys % numbers.width]
    by_p = np.lexsort((-p, source))
    source, target = source[by_p], target[by_p]
    place = np.arange(len(source)) - np.searchsorted(source, source)  # among those of its source
    most = min(most, vocab_size)
    likely = (source >= 0) & (place < most)
    table = np.zeros((vocab_size, most), dtype=np.int64)
    table[source[likely], place[likely]] = target[likely]
    return table


def reach(task: TextToText[Batch], shortlist: Shortlist) -> tuple[float, float]:
    """Return the share of held-out target tokens that a shortlist contains, and the mean size of
    V(x), one sentence at a time.
    """
    corpus = task.corpus("valid")
    sources = task.source_tokenizer.encode_ids(list(corpus.sources[:MEASURED]))
    targets = task.target_tokenizer.encode_ids(list(corpus.targets[:MEASURED]))
    sizes, held, all_tokens = [], 0, 0
    for source, target in zip(sources, targets, strict=True):
        tokens = shortlist.tokens(torch.tensor([source], dtype=torch.long))
        sizes.append(len(tokens))
        held += int(torch.isin(torch.tensor(target, dtype=torch.long), tokens).sum())
        all_tokens += len(target)
    return held / max(all_tokens, 1), float(np.mean(sizes))
