"""What a run costs: rented by the device and second, or owned and written off; break-even computed, not assumed."""

from ridgeline.cost.estimate import CostEstimate, CostTerms, estimate_cost
from ridgeline.cost.own import Ownership, break_even_utilisation_frac, depreciation_usd
from ridgeline.cost.quotes import Quote, newest_quotes
from ridgeline.cost.rent import rent_usd

__all__ = [
    "CostEstimate",
    "CostTerms",
    "Ownership",
    "Quote",
    "break_even_utilisation_frac",
    "depreciation_usd",
    "estimate_cost",
    "newest_quotes",
    "rent_usd",
]
