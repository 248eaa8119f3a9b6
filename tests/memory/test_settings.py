"""Every setting of the memory section does what it says."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from everlong.config import MemorySettings


@pytest.mark.spec("3.2")
@pytest.mark.parametrize("values", [{"scope": "nowhere"}, {"flush": 1}, {"enabled": "maybe"}])
def test_values_out_of_range_are_refused(values: dict[str, object]) -> None:
    with pytest.raises(ValidationError):
        MemorySettings.model_validate(values)
