"""The numbers that Python and the engine in C share: each enum is the one of the same name in C."""

from enum import IntEnum

NormKind = IntEnum("NormKind", "NO_NORM LAYER_NORM RMS_NORM AFFINE", start=0)
Order = IntEnum("Order", "PRE POST PLAIN", start=0)
ScoreKind = IntEnum("ScoreKind", "SCALED GENERAL ADDITIVE COSINE LOCATION LOCATION_CUT", start=0)
NormalizerKind = IntEnum("NormalizerKind", "SOFTMAX HARDMAX SPARSEMAX ENTMAX15", start=0)
PositionKind = IntEnum(
    "PositionKind",
    "NO_POSITION TABLE SINUSOIDAL HALVES CONCATENATED APPENDED ROTARY ALIBI T5 T5_CAUSAL "
    "LATER_HALVES",
    start=0,
)
BlockKind = IntEnum("BlockKind", "ATTENTION SSRU FEED_FORWARD STATE_SPACE", start=0)
Activation = IntEnum("Activation", "IDENTITY RELU GELU GELU_TANH SILU TANH SIGMOID", start=0)
CellKind = IntEnum("CellKind", "ELMAN_TANH ELMAN_RELU ELMAN_SIGMOID GRU CHO_GRU LSTM", start=0)
BridgeKind = IntEnum("BridgeKind", "NO_BRIDGE FIRST_STATES HAND_OVER SUMMARY", start=0)
AttendsWhen = IntEnum("AttendsWhen", "NEVER BEFORE_STEP AFTER_STEP", start=0)
PoolingKind = IntEnum(
    "PoolingKind", "POOL_MEAN POOL_SUMMARY POOL_FIRST POOL_MAX POOL_ATTENTION", start=0
)
