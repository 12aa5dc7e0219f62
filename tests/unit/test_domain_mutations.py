"""Each mutation of `scripts/mutate-domain` still changes a rule: its text is in the domain, and leaves valid Python."""

import ast
from pathlib import Path

import pytest
from scripts.domain_mutations import MUTATIONS, Mutation

import rackwright.domain

DOMAIN = Path(rackwright.domain.__file__).parent


@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda mutation: mutation.name)
def test_mutation_applies_to_the_domain(mutation: Mutation) -> None:
    source = (DOMAIN / mutation.file).read_text()
    assert mutation.old in source, "the rule was written anew: write its mutation anew in scripts/domain_mutations.py"
    ast.parse(source.replace(mutation.old, mutation.new))


def test_mutations_have_names_of_their_own() -> None:
    assert len({mutation.name for mutation in MUTATIONS}) == len(MUTATIONS)
