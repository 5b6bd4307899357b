"""Short name of `search_gpt3_175b.py`.

python benchmarks/search_175b.py [--json]
"""

from __future__ import annotations

import sys

from search_gpt3_175b import main

if __name__ == "__main__":
    sys.exit(main())
