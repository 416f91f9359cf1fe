"""11. Greedy search.

A decoder gives p(y_t | y_<t, x). The simplest search takes the most probable token at every step:

    y_t = argmax_y p(y | y_<t, x)        (Sutskever, Vinyals & Le, 2014, §3.2: a beam of 1)

It never looks back, so a token that is best now may lead to a worse output (see exercise 12).
Logits differ from log-probabilities by a number that is the same for all tokens of a row.

Fill the gap; the answer is `foveate check docs/exercises/11_greedy.py`.
"""

import torch

from foveate.decode.search import SingleSearch


class MyGreedy(SingleSearch):
    reimplements = "greedy"

    class Config(SingleSearch.Config, kind="my_greedy"):
        pass

    def choose(self, logits, written, draws):
        # logits (N, V) of the next token of N outputs -> its id for each output (N,)
        raise NotImplementedError
