"""The half of kopt that says what is true: pack, build, check, time, gate, sweep, archive.

Start reading at ``evaluate.py``. Nothing here knows of agents, and nothing outside the
worker processes (``kopt_harness.worker``) loads torch or a GPU library.
"""

__version__ = "0.1.0"
