"""Noch tiefer. Ещё глубже."""
