"""Code of the user's own, named ``module:attribute``: how it is found, loaded, and told apart from changed code."""

from fedtwin.usercode.digest import clear_caches, code_digest, digest_of, mentions, source_digest
from fedtwin.usercode.keeping import keep_sources, sources_of
from fedtwin.usercode.loading import forget_changed_code, is_in, load_object
from fedtwin.usercode.objects import name_of_object, only_here, sentence_of_only_here
from fedtwin.usercode.purity import Purity
from fedtwin.usercode.questions import Questions, of_device
from fedtwin.usercode.source import code_of_function, is_ours, sentence_of_error

__all__ = [
    "Purity",
    "Questions",
    "clear_caches",
    "code_digest",
    "code_of_function",
    "digest_of",
    "forget_changed_code",
    "is_in",
    "is_ours",
    "keep_sources",
    "load_object",
    "mentions",
    "name_of_object",
    "of_device",
    "only_here",
    "sentence_of_error",
    "sentence_of_only_here",
    "source_digest",
    "sources_of",
]
