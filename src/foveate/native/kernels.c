/* What a processor does quicker without a tensor library in between. Decoding: linear maps of packed
 * weights, one step of a Transformer decoder, what a search asks of its logits; one thread and nothing
 * allocated, so that several threads may each do some rows. Training: the selective scan; attention of
 * short sequences, dropout, bias, cross-entropy, gradients of weights, which OpenMP's threads share.
 *
 * Every function has a twin in PyTorch that gives the same numbers up to the order of sums. Arrays
 * are row-major; N rows are hypotheses, M sources. */

#include "linear.h"
#include "rows.h"
#include "scan.h"
#include "attend.h"
#include "dropout.h"
#include "bias.h"
#include "outer.h"
#include "layers.h"
#include "step.h"
#include "encode.h"
