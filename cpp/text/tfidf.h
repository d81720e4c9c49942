// TF-IDF rows in the feature space of a finished vocabulary.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "core/csr.h"
#include "text/term_counter.h"
#include "text/text.h"
#include "text/vocabulary.h"

namespace ramify {

struct Weighting {
    enum class Norm { none, l1, l2 };
    bool binary = false;     // a term counts once a document
    bool sublinear = false;  // 1 + ln(count)
    Norm norm = Norm::l2;
    const double* idf = nullptr;  // (n_terms), or null
};

// Sorts the counts of a row, which name columns by now, and writes its weights.
void write_row(std::vector<TermCount>& row, Scratch& s, std::uint32_t n_columns, const Weighting& w,
               std::int32_t* indices, float* data);

// The rows of a corpus; terms that are not in the vocabulary are passed over.
CsrRows tfidf_rows(const AnalyzerSpec& spec, const VocabularyView& vocabulary, const Weighting& weighting,
                   const Corpus& corpus, int threads);

}  // namespace ramify
