// TF-IDF rows in the feature space of a finished vocabulary.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "core/csr.h"
#include "text/analyzer.h"
#include "text/subwords.h"
#include "text/term_counter.h"
#include "text/vocabulary.h"

namespace ramify {

struct Weighting {
    enum class Norm { none, l1, l2 };
    bool binary = false;     // a term counts at most once in a document
    bool sublinear = false;  // 1 + ln(count)
    Norm norm = Norm::l2;
    const double* idf = nullptr;  // (n_terms), or null
};

// Sorts the counts of a row, whose ids are columns by now, and writes its weights.
void write_weights(std::vector<TermCount>& row, DocumentScratch& s, std::uint32_t n_columns, const Weighting& w,
                   std::int32_t* indices, float* data);

// The rows of a corpus; terms outside the vocabulary are skipped, or count as their parts, if there are subwords.
CsrRows tfidf_rows(const AnalyzerSpec& spec, const VocabularyView& vocabulary, const SubwordView* subwords,
                   const Weighting& weighting, const Corpus& corpus, int threads);

}  // namespace ramify
