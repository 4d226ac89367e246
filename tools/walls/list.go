package main

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// list is the list of accepted pairs and circles.
type list struct {
	name   string
	line   int // the number of the line that is read
	limits map[string]*limit
	last   *limit // the limit of the package that the pairs belong to
	wrong  error  // names all that is wrong with the list and the packages
}

// limit is a package in the list.
type limit struct {
	line          int
	pairs, circle int
	accepted      map[pair]int // the pairs below the package, each with the number of its line
}

// parse reads the text of a list.
func parse(name, text string) *list {
	l := &list{name: name, limits: map[string]*limit{}}
	for line := range strings.Lines(text) {
		l.line++
		switch fields := strings.Fields(line); {
		case len(fields) == 0 || strings.HasPrefix(fields[0], "#"):
		case len(fields) > 1 && strings.HasSuffix(fields[0], ".go") && strings.HasSuffix(fields[1], ".go"):
			l.addPair(newPair(fields[0], fields[1]), len(fields) > 2)
		default:
			l.addPackage(line)
		}
	}
	return l
}

// complain adds an error about a line, or one about the code if line is 0.
func (l *list) complain(line int, format string, args ...any) {
	err := fmt.Errorf(format, args...)
	if line > 0 {
		err = fmt.Errorf("%s:%d: %w", l.name, line, err)
	}
	l.wrong = errors.Join(l.wrong, err)
}

// addPair adds a pair to the last package. A pair without a reason is added too, so that there
// is one complaint about the pair instead of two.
func (l *list) addPair(p pair, reason bool) {
	if l.last == nil {
		l.complain(l.line, "%s and %s are not below the line of a package", p.a, p.b)
		return
	}
	if first, ok := l.last.accepted[p]; ok {
		l.complain(l.line, "%s and %s are in line %d already", p.a, p.b, first)
		return
	}
	l.last.accepted[p] = l.line
	if !reason {
		l.complain(l.line, "%s and %s have no reason", p.a, p.b)
	}
}

// addPackage adds the line of a package.
func (l *list) addPackage(line string) {
	var name string
	next := limit{line: l.line, accepted: map[pair]int{}}
	if _, err := fmt.Sscan(line, &name, &next.pairs, &next.circle); err != nil || len(strings.Fields(line)) != 3 {
		l.complain(l.line, "the line has neither two files and a reason nor a package and two numbers")
		return
	}
	if first, ok := l.limits[name]; ok {
		l.complain(l.line, "package %s is in line %d already", name, first.line)
		return
	}
	l.last = &next
	l.limits[name] = l.last
}

// check compares the packages with the list.
func (l *list) check(units []unit) {
	gone := maps.Clone(l.limits)
	for _, u := range units {
		delete(gone, u.name)
		for _, file := range u.long {
			l.complain(0, "package %s: %s, more than %d: divide the file", u.name, file, maxLines)
		}
		allowed := l.limits[u.name]
		if allowed == nil {
			allowed = &limit{}
		}
		l.checkPairs(u, allowed)
		l.checkNumbers(u, allowed)
	}
	for _, name := range slices.Sorted(maps.Keys(gone)) {
		l.complain(gone[name].line, "the product has no package %s: remove the line", name)
	}
}

// checkPairs compares the pairs of a package with those below its line. If the list has none
// there, only the number of pairs counts.
func (l *list) checkPairs(u unit, allowed *limit) {
	for _, p := range u.pairs {
		if _, ok := allowed.accepted[p]; !ok && len(allowed.accepted) > 0 {
			l.complain(allowed.line, "package %s: %s and %s refer to each other, and are not in the list: "+
				"remove one direction, or add the pair with a reason\n%s", u.name, p.a, p.b, u.refs.describe(p))
		}
	}
	for _, p := range slices.SortedFunc(maps.Keys(allowed.accepted), comparePairs) {
		if !slices.Contains(u.pairs, p) {
			l.complain(allowed.accepted[p], "package %s: %s and %s no longer refer to each other: remove the line", u.name, p.a, p.b)
		}
	}
}

// checkNumbers compares the numbers of a package with its line.
func (l *list) checkNumbers(u unit, allowed *limit) {
	pairs, circle := len(u.pairs), len(u.circle)
	if pairs > allowed.pairs {
		var names strings.Builder
		for _, p := range u.pairs {
			fmt.Fprintf(&names, "\n    %s %s", p.a, p.b)
		}
		l.complain(allowed.line, "package %s has %d two-way pairs of files, and the list allows %d: remove one direction "+
			"(-list -package %s prints the names)%s", u.name, pairs, allowed.pairs, u.name, &names)
	}
	if circle > allowed.circle {
		l.complain(allowed.line, "package %s has a circle of %d files, and the list allows %d: move the declarations that close it\n    %s",
			u.name, circle, allowed.circle, strings.Join(u.circle, " "))
	}
	switch low := fmt.Sprintf("%s %d %d", u.name, min(pairs, allowed.pairs), min(circle, allowed.circle)); {
	case allowed.line > 0 && circle == 0:
		l.complain(allowed.line, "package %s has no circle of files: remove the line", u.name)
	case pairs < allowed.pairs || circle < allowed.circle:
		l.complain(allowed.line, "package %s has less than the list allows: lower the line to %q", u.name, low)
	}
}
