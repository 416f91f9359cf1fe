"""12. Beam search.

Keep the n most probable prefixes instead of one. Each can be extended by each of V tokens,

    log p(y_≤t) = log p(y_<t) + log p(y_t | y_<t).

Return the 2n best of these n · V extensions, because n of them may end here (Graves, 2012;
Sutskever et al., 2014, §3.2). `topk` of the flattened (M, n · V) gives values and indices; an
index determines the token and the parent, the prefix that is extended.

Fill the gap, then run `foveate check docs/exercises/12_beam.py`.
"""

from foveate.decode.beam import Beam


class MyBeam(Beam):
    reimplements = "beam"

    class Config(Beam.Config, kind="my_beam"):
        pass

    def extend(self, beams, following, steps):
        # beams.log_p (M, 1, n): log p of n prefixes -> log p, token, parent, each (M, 1, 2n)
        total = beams.log_p
        log_p = (following.logits - following.log_z).unflatten(0, (len(total), -1))  # (M, n, V)
        count = min(2 * self.width, log_p[0].numel())
        values, index = ...
        token, parent = ..., ...
        return values[:, None], token[:, None], parent[:, None]
