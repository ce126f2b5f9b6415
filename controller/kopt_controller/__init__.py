"""The half of kopt that says what to try next; it never measures.

Start reading at ``loop.py``.
"""
