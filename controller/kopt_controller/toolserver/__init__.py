"""The commands that a coding agent needs, as tools of an MCP server.

``kopt mcp`` serves them over stdio. A tool runs the command of its name in a process of its own
(``running.py``), within an allowance (``allowance.py``) and on files of one folder (``places.py``);
what it prints is handed on without what could tell a candidate its answers (``public.py``).
"""
