"""TF-IDF features of your own texts: weighted fields, and words combined with character n-grams."""

from __future__ import annotations

import ramify

RECORDS = [
    {"title": "Numerical linear algebra", "abstract": "Direct and iterative solvers for large sparse systems."},
    {"title": "Regular expressions", "abstract": "Patterns that find and split text."},
    {"title": "Sparse solvers", "abstract": "Preconditioned conjugate gradients for symmetric matrices."},
]


def main() -> None:
    # A word of the title counts as much as three words of the abstract, in one feature space.
    fields = ramify.Tfidf(fields={"title": 3.0, "abstract": 1.0}, sublinear_tf=True)
    X = fields.fit_transform(RECORDS)
    terms = fields.get_feature_names_out()
    for record, row in zip(RECORDS, X, strict=True):
        best = row.data.argsort()[::-1][:3]
        print(f"{record['title']}: {', '.join(terms[row.indices[best]])}")

    # Words beside character n-grams inside words: robust to inflection, German compounds and typing errors.
    characters = ramify.Tfidf(analyzer="char_wb", ngram_range=(3, 5))
    both = ramify.Concat(parts=(ramify.Tfidf(), characters), weights=(1.0, 0.5))
    titles = [record["title"] for record in RECORDS]
    print(both.fit_transform(titles).shape, both.transform(["spars solvers"]).nnz)


if __name__ == "__main__":
    main()
