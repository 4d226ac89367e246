package main

import (
	"errors"
	"fmt"
	"slices"
	"strings"
)

// parse returns the pairs in the text of a list, each with the number of its line. The error
// names all lines that are wrong. A pair without a reason is returned too, so that the list
// gets one complaint about the pair instead of two.
func parse(name, text string) (accepted map[pair]int, wrong error) {
	accepted = map[pair]int{}
	number := 0
	for line := range strings.Lines(text) {
		number++
		fields := strings.Fields(line)
		if len(fields) == 0 || strings.HasPrefix(fields[0], "#") {
			continue
		}
		complain := func(format string, args ...any) {
			wrong = errors.Join(wrong, fmt.Errorf("%s:%d: %s", name, number, fmt.Sprintf(format, args...)))
		}
		if len(fields) < 2 || !strings.HasSuffix(fields[0], ".go") || !strings.HasSuffix(fields[1], ".go") {
			complain("the line does not begin with the names of two files")
			continue
		}
		p := newPair(fields[0], fields[1])
		if first, ok := accepted[p]; ok {
			complain("%s and %s are in line %d already", p.a, p.b, first)
			continue
		}
		accepted[p] = number
		if len(fields) == 2 {
			complain("%s and %s have no reason", p.a, p.b)
		}
	}
	return accepted, wrong
}

// gone returns the accepted pairs that are not among the pairs, in the order of their lines.
func gone(accepted map[pair]int, pairs []pair) (missing []pair) {
	for p := range accepted {
		if !slices.Contains(pairs, p) {
			missing = append(missing, p)
		}
	}
	slices.SortFunc(missing, func(a, b pair) int { return accepted[a] - accepted[b] })
	return missing
}
