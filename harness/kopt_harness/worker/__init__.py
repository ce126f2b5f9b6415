"""Processes that hold what the orchestrator must not: torch, the device, candidate code.

``judge`` draws secret inputs, owns the arenas and compares; ``candidate`` holds the built
solution and the timer. Both are started by ``spawn`` and speak ``wire``.
"""
