"""The locked dependencies: what they are (an SBOM), and whether weaknesses of them are known.

    python tools/audit.py LOCK --sbom build/sbom.json

Writes the bill of materials in the form of CycloneDX, which needs no network, and asks the service
of PyPI, through `pip-audit` (Python Packaging Authority), for known weaknesses. Where that service
cannot be reached, this says so and ends with 3: nothing was checked then, and nothing is promised.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent
FOUND, UNREACHABLE = 1, 3  # exit codes
POLICY = {  # what SECURITY.md has to say, and words by which it does
    "how to report": ("report", "privately"),
    "which versions are mended": ("newest version", "fixes"),
    "what is guarded": ("promises", "danger"),
    "what is not": ("not guarded",),
}


def tool(name: str, *arguments: object) -> subprocess.CompletedProcess[str]:
    """A program that stands beside this Python."""
    command = [str(Path(sys.executable).with_name(name)), *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=False, encoding="utf-8")


def write_sbom(lock: Path, out: Path) -> str:
    """The bill of materials of a lock; every line of the lock must be in it."""
    out.parent.mkdir(parents=True, exist_ok=True)
    project = ROOT / "pyproject.toml"
    done = tool(
        "cyclonedx-py", "requirements", lock, "--pyproject", project, "--output-reproducible",
        "--output-format", "JSON", "--output-file", out,
    )  # fmt: skip
    if done.returncode:
        sys.exit(f"no SBOM: {done.stderr.strip()}")
    tree = json.loads(out.read_text("utf-8"))
    have = {(part["name"].lower(), part.get("version")) for part in tree["components"]}
    lines = re.findall(r"^([\w.-]+)==([^\s;]+)", lock.read_text("utf-8"), re.MULTILINE)
    if missing := [name for name, version in lines if (name.lower(), version) not in have]:
        sys.exit(f"{out} lacks {', '.join(missing)}")
    return f"{out}: {tree['bomFormat']} {tree['specVersion']}, {len(lines)} locked packages"


def weaknesses(lock: Path) -> tuple[int, str]:
    """An exit code, and what is known of the locked packages."""
    done = tool(
        "pip-audit", "--requirement", lock, "--no-deps", "--disable-pip", "--format", "json"
    )
    try:
        parts = json.loads(done.stdout)["dependencies"]
    except (ValueError, LookupError):
        why = (done.stderr.strip().splitlines() or ["it said nothing"])[-1]
        return UNREACHABLE, f"NOT CHECKED for known weaknesses: no answer of the service ({why})"
    skipped = [part for part in parts if "skip_reason" in part]
    bad = [f"{p['name']} {p['version']}: {w['id']}" for p in parts for w in p.get("vulns", [])]
    if skipped:
        why = f"{len(skipped)} of {len(parts)} packages, as {skipped[0]['skip_reason']}"
        return UNREACHABLE, f"NOT CHECKED for known weaknesses: {why}"
    if bad:
        return FOUND, "known weaknesses:\n  " + "\n  ".join(bad)
    return 0, f"no weakness is known of {len(parts)} locked packages"


def policy(path: Path) -> str:
    """What SECURITY.md has; stops where it lacks something."""
    text = path.read_text("utf-8").lower() if path.is_file() else ""
    lacking = [what for what, words in POLICY.items() if not all(word in text for word in words)]
    if lacking:
        sys.exit(f"{path} does not say {', '.join(lacking)}")
    return f"{path.name} says {', '.join(POLICY)}"


def main() -> None:
    """Write the SBOM, ask for weaknesses, and say what was checked."""
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("lock", type=Path)
    options.add_argument("--sbom", type=Path, default=ROOT / "build" / "sbom.json")
    inputs = options.parse_args()
    print(policy(ROOT / "SECURITY.md"))
    print(write_sbom(inputs.lock, inputs.sbom))
    code, output = weaknesses(inputs.lock)
    print(output, file=sys.stderr if code else sys.stdout)
    sys.exit(code)


if __name__ == "__main__":
    main()
