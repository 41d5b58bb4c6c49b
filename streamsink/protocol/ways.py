"""Ways on that several errors name, in one wording each; what they say to do is tested as it is said."""

import hashlib


# Of batches that never came to the sink.
CALLED_FOR_EVERY_BATCH = (
    "If your batch function does not call the sink for a batch without rows, change that first: call it for every batch, also for one "
    "without rows"
)


def give_up(path: str, application: str) -> str:
    """Of records that can never be published. The sentence ends without a full stop."""
    return (
        f"If that cannot be mended, stop the query and call streamsink.give_up({path!r}, application={application!r}): it forgets what can "
        "never be published, with what was recorded after it, and says from where the source is read again"
    )


def word(question: str) -> str:
    """The word by which an option answers exactly this question. question: all that makes it this one and no other."""
    return hashlib.sha256(question.encode()).hexdigest()[:12]
