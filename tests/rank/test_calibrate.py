from __future__ import annotations

import numpy as np
import pytest
from sklearn.tree import DecisionTreeClassifier

from ramify.rank.calibrate import fit_calibrator


def test_gives_what_the_library_gives():
    random = np.random.default_rng(0)
    features = random.random((3000, 4)).astype(np.float32)
    right = random.random(3000) < features[:, 0] * features[:, 1]
    calibrator = fit_calibrator(features, right)
    model = DecisionTreeClassifier(max_depth=5, min_samples_leaf=20, random_state=0).fit(features, right)
    assert calibrator(features) == pytest.approx(model.predict_proba(features)[:, 1], abs=1e-6)
    assert calibrator(features)[features[:, :2].min(axis=1) > 0.8].mean() > 0.6


@pytest.mark.parametrize("value", [True, False])
def test_pairs_of_one_kind(value):
    features = np.random.default_rng(0).random((50, 4)).astype(np.float32)
    assert np.all(fit_calibrator(features, np.full(50, value))(features) == float(value))
