package main

import (
	"embed"
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// known has the texts of licences, as words: in lower case, without punctuation. The
// name of a file begins with its SPDX identifier. A * stands for up to twenty words.
//
//go:embed known/*.txt
var known embed.FS

var (
	notWord = regexp.MustCompile(`[^a-z0-9]+`)

	// binding are words of which something that is no licence we know has none.
	binding = regexp.MustCompile(` (shall|must|may|not|only|commercial|sell|fee|a?gpl|lgpl|clause|conditions|prohibited|restrict(ed|ions?)|terminate) `)
)

// around is how many words a file may have beside licences: names, years, what of the
// module is under which, and how to apply the Apache License.
const around = 250

type licence struct {
	name string
	text *regexp.Regexp
}

// licences returns what is known, the longest first, because one may be part of another.
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

// identify returns the SPDX identifiers of all licences in a text, or an error if there
// is none, or something that may be another one.
func identify(text string, among []licence) (names []string, err error) {
	words := " " + notWord.ReplaceAllString(strings.ToLower(text), " ") + " "
	for _, l := range among {
		if l.text.MatchString(words) {
			words = l.text.ReplaceAllString(words, "   ") // so that what is before and after does not join
			names = append(names, l.name)
		}
	}
	slices.Sort(names)
	names = slices.Compact(names)
	rest := strings.Fields(words)
	switch found := binding.FindString(" " + strings.Join(rest, " ") + " "); {
	case len(names) == 0:
		return nil, fmt.Errorf("it is none that is known")
	case len(rest) > around:
		return names, fmt.Errorf("it has %d words more than %v", len(rest), names)
	case found != "":
		return names, fmt.Errorf("it says%q outside of %v", found, names)
	}
	return names, nil
}
