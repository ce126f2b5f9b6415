"""Questions about the archive, answered with plain typed data.

What ``kopt report`` writes and ``kopt dashboard`` shows comes from here and nowhere else, so that
the two cannot differ. Read ``model.py`` first: what a chapter is. ``overview.py`` answers out of
the index alone; ``chapters.py`` reads journals and committed evidence; ``foreign.py`` has the
tables of other people's results. Everything is a function of the archive; nothing is written.
"""

from __future__ import annotations

from .chapters import Sources, run_chapter, subject_chapter
from .estimates import Estimates, estimates, nearest_place, nearest_rank
from .foreign import Claim, ForeignRun, ForeignWorkload, foreign_runs
from .model import (
    Asked,
    BlockSamples,
    CandidatePoint,
    Chapter,
    Command,
    Cost,
    DecisionView,
    DirectionRow,
    EfficiencyRow,
    EnvironmentView,
    EvaluationTable,
    Hardware,
    Headline,
    RegimeView,
    RoundPoint,
    Standing,
    SteerPoint,
    Subject,
    WorkloadRow,
)
from .overview import (
    CampaignRow,
    SubjectKey,
    campaign_rows,
    evaluation_table,
    list_subjects,
    retained_folder,
)
from .sources import Pair, PairRow, retained_pair, round_pair

__all__ = [
    "Asked",
    "BlockSamples",
    "CampaignRow",
    "CandidatePoint",
    "Chapter",
    "Claim",
    "Command",
    "Cost",
    "DecisionView",
    "DirectionRow",
    "EfficiencyRow",
    "EnvironmentView",
    "Estimates",
    "EvaluationTable",
    "ForeignRun",
    "ForeignWorkload",
    "Hardware",
    "Headline",
    "Pair",
    "PairRow",
    "RegimeView",
    "RoundPoint",
    "Sources",
    "Standing",
    "SteerPoint",
    "Subject",
    "SubjectKey",
    "WorkloadRow",
    "campaign_rows",
    "estimates",
    "evaluation_table",
    "foreign_runs",
    "list_subjects",
    "nearest_place",
    "nearest_rank",
    "retained_folder",
    "retained_pair",
    "round_pair",
    "run_chapter",
    "subject_chapter",
]
