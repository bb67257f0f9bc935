"""The runtime: a package alone, on ONNX Runtime. Knows nothing of checkpoints or of how graphs are made."""

from cabochon.runtime.columns import Eviction
from cabochon.runtime.generation import Generation, Timings
from cabochon.runtime.model import Forward, Model, Stream, load
from cabochon.runtime.prompts import Prompt
from cabochon.runtime.proposers import PromptLookup, Proposer
from cabochon.runtime.request import Options
from cabochon.runtime.sampling import Hook
from cabochon.runtime.session import Session
from cabochon.runtime.soft import Medium, SoftToken
from cabochon.runtime.state import Output, State, stack
from cabochon.runtime.tally import Speculation

__all__ = [
    "Eviction", "Forward", "Generation", "Hook", "Medium", "Model", "Options", "Output", "Prompt", "PromptLookup",
    "Proposer", "Session", "SoftToken", "Speculation", "State", "Stream", "Timings", "load", "stack",
]  # fmt: skip
