"""What is lost when foveate is killed, cut off, fed with nonsense, or under load.

    python benchmarks/durability kill        a training killed at random moments
    python benchmarks/durability faults      SIGKILL, full and read-only disks, two at once, clocks
    python benchmarks/durability hosts       two hosts that train together lose their link
    python benchmarks/durability fuzz        every reader under a fuzzer
    python benchmarks/durability under_fire  a server under loads and bad clients

Each has a --help of its own.
"""

import importlib
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

import harness

PARTS = ("kill", "faults", "hosts", "fuzz", "under_fire")

if __name__ == "__main__":
    if len(sys.argv) < 2 or sys.argv[1] not in PARTS:
        print(__doc__)
        sys.exit(0 if sys.argv[1:] == ["--help"] else 2)
    # a part alone: what the fuzzer reads is imported under its eyes
    harness.run(importlib.import_module(sys.argv[1]).main, part=sys.argv[1])
