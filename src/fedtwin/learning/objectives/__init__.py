"""What a network is trained by and judged by: losses, metrics, optimisers; fedtwin's own, or the user's."""

from fedtwin.learning.objectives.descent import Descent, clip_factor
from fedtwin.learning.objectives.objective import Objective, objective_of

__all__ = ["Descent", "Objective", "clip_factor", "objective_of"]
