"""A page on this machine that follows a campaign while it goes on.

``hub.py`` keeps the runs that are looked at, ``guard.py`` decides who may ask, ``app.py`` answers,
``serve.py`` listens. The page itself is in ``page/``: plain HTML, CSS and JavaScript, nothing of
it from elsewhere. Needs the extra ``dashboard``; nothing else in kopt does.
"""

from __future__ import annotations
