package main

import (
	"embed"
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// known holds the texts of licences as words: in lower case, without punctuation. The name of
// a file begins with its SPDX identifier. A * stands for up to twenty words.
//
//go:embed known/*.txt
var known embed.FS

var (
	notWord = regexp.MustCompile(`[^a-z0-9]+`)

	// binding matches words that may belong to an unknown licence, if they stand outside of
	// the known ones.
	binding = regexp.MustCompile(` (shall|must|may|not|only|commercial|sell|fee|a?gpl|lgpl|clause|conditions|prohibited|restrict(ed|ions?)|terminate) `)
)

// around is the number of words that a file may contain outside of the licences: names, years,
// which part of the module is under which licence, and how to apply the Apache License.
const around = 250

type licence struct {
	name string
	text *regexp.Regexp
}

// licences returns the known licences. The longest come first, because one may be a part of
// another.
func licences() (all []licence) {
	files, err := known.ReadDir("known")
	if err != nil {
		panic(err)
	}
	length := map[string]int{}
	for _, file := range files {
		text, err := known.ReadFile("known/" + file.Name())
		if err != nil {
			panic(err)
		}
		name, _, _ := strings.Cut(strings.TrimSuffix(file.Name(), ".txt"), " ")
		words := strings.Join(strings.Fields(string(text)), " ")
		pattern := " " + strings.ReplaceAll(regexp.QuoteMeta(words), `\* `, `(\w+ ){0,20}?`) + " "
		length[pattern] = len(words)
		all = append(all, licence{name, regexp.MustCompile(pattern)})
	}
	slices.SortFunc(all, func(a, b licence) int { return length[b.text.String()] - length[a.text.String()] })
	return all
}

// identify returns the SPDX identifiers of all licences in a text. It returns an error if
// there is none, or if the rest of the text may be another licence.
func identify(text string, among []licence) (names []string, err error) {
	words := " " + notWord.ReplaceAllString(strings.ToLower(text), " ") + " "
	for _, l := range among {
		if l.text.MatchString(words) {
			words = l.text.ReplaceAllString(words, "   ") // the spaces keep the words before and after apart
			names = append(names, l.name)
		}
	}
	slices.Sort(names)
	names = slices.Compact(names)
	rest := strings.Fields(words)
	switch found := binding.FindString(" " + strings.Join(rest, " ") + " "); {
	case len(names) == 0:
		return nil, fmt.Errorf("it is not a known licence")
	case len(rest) > around:
		return names, fmt.Errorf("it has %d words that are not part of %v", len(rest), names)
	case found != "":
		return names, fmt.Errorf("it contains %q outside of %v", found, names)
	}
	return names, nil
}
