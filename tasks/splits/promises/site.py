"""A site split promises what leave-one-domain-out does."""

from gradatim.tasks.splits.promises.leave_one_domain_out import promises

__all__ = ["promises"]
