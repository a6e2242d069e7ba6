#!/usr/bin/env python3
"""newcomer.py BINARY: does what the README's first steps say, letter for letter, in an empty home, each terminal a shell
of its own, and looks whether the job arrives and its attempt is shown. What is not taken from the README: the build,
and the node's port, which is a free one.
"""

import os
import re
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)

from demo.port import free_port  # noqa: E402
from demo.processes import Gone, Processes  # noqa: E402

START_S = 90


def terminals(readme):
    """The three blocks of the section, without the build."""
    section = readme.split("\n## Use it\n")[1].split("\n### ")[0]
    blocks = re.findall(r"```sh\n(.*?)```", section, re.DOTALL)
    if len(blocks) < 3:
        raise Gone("the README's section Use it has no three terminals")
    return [block.replace("cargo build --release\n", "") for block in blocks[:3]]


def main():
    binary = os.path.abspath(sys.argv[1])
    with open(os.path.join(HERE, "..", "..", "README.md"), encoding="utf-8") as file:
        node, receiver, person = terminals(file.read())
    with tempfile.TemporaryDirectory(prefix="railyard-newcomer-") as home, Processes() as processes:
        os.chmod(home, 0o755)
        os.makedirs(os.path.join(home, "target", "release"))
        os.symlink(binary, os.path.join(home, "target", "release", "railyard"))
        api, hook = free_port(), free_port()
        env = {"PATH": os.environ["PATH"], "HOME": home, "TMPDIR": os.environ.get("TMPDIR", "/tmp"),
               "RAILYARD_API__LISTEN": f"127.0.0.1:{api}", "RAILYARD_URL": f"http://127.0.0.1:{api}"}
        if "RAILYARD_PG_BIN" in os.environ:
            env["RAILYARD_PG_BIN"] = os.environ["RAILYARD_PG_BIN"]

        def shell(text):
            # The receiver's port is in the README twice: once in each terminal, by default and by name.
            text = text.replace("railyard listen ", f"railyard listen --address 127.0.0.1:{hook} ")
            return ["bash", "-euc", f"cd {home}\n" + text.replace("127.0.0.1:9099", f"127.0.0.1:{hook}")]

        try:
            first = processes.start("the first terminal", shell(node), os.path.join(home, "node.log"), env)
            first.line_with("token: ", START_S)
            second = processes.start("the second terminal", shell(receiver), os.path.join(home, "receiver.log"), env)
            second.line_with("listening: ", START_S)
            # A person types the last command after a moment; a script waits until the delivery is over.
            over = 'until railyard jobs attempts "$JOB" | grep -q SUCCESS; do sleep 0.2; done\n'
            person = person.replace("railyard jobs attempts", over + "railyard jobs attempts")
            third = subprocess.run(shell(person), env=env, capture_output=True, text=True, timeout=60, check=False)
            shown, arrived = third.stdout, second.tail()
            wrong = third.returncode != 0 or "SUCCESS" not in shown or "flowcatalyst valid, standard webhooks valid" not in arrived
            if wrong:
                raise Gone(f"third terminal ({third.returncode}):\n{shown}{third.stderr}\nreceiver:\n{arrived}")
        except (Gone, subprocess.TimeoutExpired) as error:
            print(f"   the README's first steps do not work: {error}")
            return 1
    print("   a job arrives, signed, and its attempt is shown")
    return 0


if __name__ == "__main__":
    sys.exit(main())
