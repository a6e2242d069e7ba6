# Sourced. What the scripts say, and how they give up. SAY_FD is 2 where standard output is kept for a machine.
SAY_FD=${SAY_FD:-1}

# A step that begins, on a line of its own.
step() { printf '\n== %s\n' "$*" >&"$SAY_FD"; }

# A fact about the running step.
say() { printf '   %s\n' "$*" >&"$SAY_FD"; }

# The end: why, and what to do about it.
die() { printf '\n%s: %s\n' "$(basename "$0")" "$*" >&2; exit 1; }
