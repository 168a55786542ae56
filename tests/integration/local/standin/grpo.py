"""`grpo`, all real but for the two programs it starts: the stand-ins in this folder."""

import sys
from pathlib import Path

from grpo_operator.cli import main
from grpo_operator.local.adapter import Programs

here = Path(__file__).parent
programs = Programs(
    trainer=(sys.executable, str(here / "trainer.py")), reference=(sys.executable, str(here / "refserver.py"))
)
Programs.installed = staticmethod(lambda job: programs)  # type: ignore[method-assign]
main()
