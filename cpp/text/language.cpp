#include "text/language.h"

#include <string>
#include <string_view>
#include <vector>

#include "text/vocabulary.h"

namespace ramify {

namespace {

struct FunctionWords {
    Language language;
    std::string_view words;
};

constexpr FunctionWords function_words[] = {
    {Language::german,
     "der die das und ist nicht mit den dem des ein eine einer eines einem einen für von zu zur zum auf aus bei nach "
     "über unter auch sich wird werden wurde wurden durch als im am an in es sie er wie oder aber dass daß noch nur "
     "sind hat haben kann können vor zwischen bis ihre ihrer ihren seine seiner diese dieser dieses diesem diesen "
     "deren "
     "dessen sowie gegen ohne um so war beim vom ins man wenn dabei allem doch mehr"},
    {Language::english,
     "the of and to in is that for it as with on by are be this from or an was which at not have has were their its "
     "can between into also these those been but they more than his her will such how other about we our you all may "
     "through what when who there both while where within some if do does would should could most each so no only"},
    {Language::french,
     "le la les de des du et un une est que qui dans pour par sur au aux avec ce cette ces son sa ses se ne pas "
     "plus "
     "il elle sont ont être où leur leurs mais ou nous vous comme entre sans sous"},
    {Language::spanish,
     "el la los las de del un una es que por para con se su sus al lo como más pero no fue son entre sobre este "
     "esta estos estas sin también ha han muy"},
    {Language::italian,
     "il lo la gli le di del della dei delle dello degli da dal dalla in nel nella un una uno che per con su sul sulla "
     "non si sono come anche più tra fra ed al alla ai alle ha questo questa"},
    {Language::dutch,
     "de het een van in is op te dat die voor met niet zijn aan er om ook als bij door naar uit over tot maar wordt "
     "worden deze dit werd hun of onder tussen heeft"},
    {Language::swedish,
     "och att det som ett är av för på med den till har de inte om från var men kan eller ska hur under mellan vid "
     "också sig"},
};

struct Ending {
    std::string_view bytes;
    Language language;
    float weight;
};
constexpr Ending endings[] = {
    {"ung", Language::german, 0.5f},    {"ungen", Language::german, 0.5f},  {"keit", Language::german, 0.5f},
    {"heit", Language::german, 0.5f},   {"lich", Language::german, 0.5f},   {"isch", Language::german, 0.5f},
    {"ische", Language::german, 0.5f},  {"ischen", Language::german, 0.5f}, {"ischer", Language::german, 0.5f},
    {"lichen", Language::german, 0.5f}, {"liche", Language::german, 0.5f},  {"schaft", Language::german, 0.5f},
    {"ik", Language::german, 0.4f},     {"en", Language::german, 0.1f},     {"ing", Language::english, 0.4f},
    {"ness", Language::english, 0.4f},  {"ity", Language::english, 0.5f},   {"ies", Language::english, 0.4f},
    {"ous", Language::english, 0.4f},   {"ed", Language::english, 0.3f},    {"ly", Language::english, 0.4f},
    {"ics", Language::english, 0.5f},   {"ical", Language::english, 0.5f},  {"tions", Language::english, 0.4f},
    {"ence", Language::english, 0.3f},  {"ance", Language::english, 0.3f},  {"ory", Language::english, 0.4f},
    {"ción", Language::spanish, 0.5f},  {"ções", Language::spanish, 0.2f},  {"zione", Language::italian, 0.5f},
    {"ment", Language::french, 0.1f},   {"ique", Language::french, 0.5f},   {"aux", Language::french, 0.3f},
    {"ijk", Language::dutch, 0.5f},     {"heid", Language::dutch, 0.5f},    {"ning", Language::swedish, 0.2f},
};

// The words of all languages, each with a weight for every language: a word that several have counts less for each.
class FunctionWordTable {
public:
    FunctionWordTable() {
        for (const FunctionWords& list : function_words) {
            for (std::size_t begin = 0; begin < list.words.size();) {
                const std::size_t end = std::min(list.words.find(' ', begin), list.words.size());
                add(std::string(list.words.substr(begin, end - begin)), list.language);
                begin = end + 1;
            }
        }
        for (auto& row : weights_) {
            float n = 0.0f;
            for (const float w : row) n += w;
            for (float& w : row) w /= n;
        }
    }

    const std::array<float, n_languages>* find(const TermKey& word) const {
        if (word.length > 9) return nullptr;  // "zwischen", "también"
        const std::uint32_t id = words_.view().find(word);
        return id == Slot::empty ? nullptr : &weights_[id];
    }

private:
    void add(std::string word, Language language) {
        const std::size_t n = word.size();
        word.resize(n + term_padding);
        const std::uint32_t id = words_.find_or_add(reinterpret_cast<const std::uint8_t*>(word.data()), n);
        if (id >= weights_.size()) weights_.emplace_back();
        weights_[id][static_cast<std::size_t>(language)] = 1.0f;
    }

    VocabularyBuilder words_;
    std::vector<std::array<float, n_languages>> weights_;
};

class EndingTable {
public:
    EndingTable() {
        for (const Ending& e : endings) by_last_byte_[static_cast<std::uint8_t>(e.bytes.back())].push_back(&e);
    }
    const std::vector<const Ending*>& with_last_byte(std::uint8_t byte) const { return by_last_byte_[byte]; }

private:
    std::array<std::vector<const Ending*>, 256> by_last_byte_;
};

}  // namespace

void LanguageEvidence::add(const TermKey& word) {
    static const FunctionWordTable table;
    static const EndingTable ending_table;
    if (const auto* weights = table.find(word); weights != nullptr) {
        for (std::size_t i = 0; i < scores_.size(); ++i) scores_[i] += (*weights)[i];
        return;
    }
    if (word.length < 5) return;
    const std::string_view bytes(reinterpret_cast<const char*>(word.bytes), word.length);
    for (const Ending* e : ending_table.with_last_byte(word.bytes[word.length - 1]))
        if (bytes.ends_with(e->bytes)) scores_[static_cast<std::size_t>(e->language)] += e->weight;
    for (std::size_t i = bytes.find('\xc3'); i < bytes.size() - 1; i = bytes.find('\xc3', i + 2)) {
        const char c = bytes[i + 1];  // ä, ö, ü, ß
        if (c == '\xa4' || c == '\xb6' || c == '\xbc' || c == '\x9f') {
            scores_[static_cast<std::size_t>(Language::german)] += 0.5f;
            if (c == '\xa4' || c == '\xb6') scores_[static_cast<std::size_t>(Language::swedish)] += 0.2f;
        }
    }
}

void LanguageEvidence::add(const LanguageEvidence& other, float weight) {
    for (std::size_t i = 0; i < scores_.size(); ++i) scores_[i] += other.scores_[i] * weight;
}

Language LanguageEvidence::best(Language fallback) const {
    auto found = static_cast<std::size_t>(fallback);
    for (std::size_t i = 1; i < scores_.size(); ++i)
        if (scores_[i] > scores_[found]) found = i;
    return static_cast<Language>(found);
}

}  // namespace ramify
