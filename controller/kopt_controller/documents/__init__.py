"""What each command prints with ``--json``: one model for each document.

``scripts/json_reference.py`` makes the reference and the JSON schemas out of these, and tests hold
what commands print against them. Every document begins with ``schema``, which is 1 and stands in
none of the models; a command that fails prints ``ErrorDocument`` instead.
"""

from __future__ import annotations

from collections.abc import Mapping

from kopt_harness.schema import BuildResult, Comparison, Evaluation, Model
from kopt_harness.timing_report import TimingCalibration

from ..result import PromoteOutcome
from .ablating import AblateDocument
from .agents import PromptDocument, SkillsInstallDocument, SkillsListDocument
from .judging import (
    BenchDocument,
    CalibrateDocument,
    DiagnoseDocument,
    GateDocument,
    OfficialDocument,
    ProfileDocument,
    ReplayDocument,
    SweepDocument,
)
from .looking import (
    DefinitionsDocument,
    DoctorDocument,
    ErrorDocument,
    ExportDefinitionDocument,
    ExportSolutionDocument,
    ExportTraceSetDocument,
    NewDocument,
    PackDocument,
    UnpackDocument,
    WorkloadsDocument,
)
from .loop import (
    CampaignStatusDocument,
    DashboardDocument,
    EvidenceDocument,
    ExplainDocument,
    HistoryDocument,
    NoRunDocument,
    PromoteDispatchDocument,
    PromotionStatusDocument,
    ReindexDocument,
    RerunDocument,
    RoundDocument,
    SteerDocument,
    SweepStatusDocument,
)
from .results import AuditDocument, ImportDocument, ReportDocument, ScoreDocument

__all__ = ["DOCUMENTS", "WITHOUT_DOCUMENT", "ErrorDocument"]

DOCUMENTS: Mapping[str, tuple[type[Model], ...]] = {
    "definitions": (DefinitionsDocument,),
    "doctor": (DoctorDocument,),
    "workloads": (WorkloadsDocument,),
    "build": (BuildResult,),
    "export definition": (ExportDefinitionDocument,),
    "export solution": (ExportSolutionDocument,),
    "export trace-set": (ExportTraceSetDocument,),
    "new": (NewDocument,),
    "pack": (PackDocument,),
    "unpack": (UnpackDocument,),
    "bench": (BenchDocument,),
    "calibrate": (CalibrateDocument, TimingCalibration),
    "check": (Evaluation,),
    "compare": (Comparison,),
    "diagnose": (DiagnoseDocument,),
    "gate": (GateDocument,),
    "official": (OfficialDocument,),
    "profile": (ProfileDocument,),
    "replay": (ReplayDocument,),
    "sweep": (SweepDocument,),
    "ablate": (AblateDocument,),
    "dashboard": (DashboardDocument,),
    "evidence": (EvidenceDocument,),
    "explain": (ExplainDocument,),
    "history": (HistoryDocument,),
    "promote": (PromoteOutcome,),
    "promote-dispatch": (PromoteDispatchDocument,),
    "reindex": (ReindexDocument,),
    "report": (ReportDocument,),
    "rerun": (RerunDocument,),
    "resume": (RoundDocument,),
    "round": (RoundDocument,),
    "status": (
        CampaignStatusDocument,
        PromotionStatusDocument,
        SweepStatusDocument,
        NoRunDocument,
    ),
    "steer": (SteerDocument,),
    "audit": (AuditDocument,),
    "import": (ImportDocument,),
    "score": (ScoreDocument,),
    "prompt": (PromptDocument,),
    "skills install": (SkillsInstallDocument,),
    "skills list": (SkillsListDocument,),
}
"""By command: what it may print; ``schema`` comes first in each."""

WITHOUT_DOCUMENT: Mapping[str, str] = {
    "mcp": "what it writes are messages of MCP, for as long as its client stays",
}
"""Commands that print no document, with or without ``--json``, and why."""
