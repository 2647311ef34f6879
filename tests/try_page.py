import sys, tempfile
from pathlib import Path
from tests.pages import run_page, ROOT
d = Path(tempfile.mkdtemp()); print(d)
print(run_page(ROOT / sys.argv[1], d))
