package memory

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	"k8s.io/client-go/tools/cache"
)

// functions holds the index functions of a store. It never changes: with returns a new value, in which these
// functions keep their numbers.
type functions struct {
	numbers map[string]int
	names   []string
	list    []cache.IndexFunc
}

// with returns functions with more indexes, or an error if a name is taken or a function is nil.
func (f *functions) with(indexers cache.Indexers) (*functions, error) {
	more := &functions{numbers: map[string]int{}, names: slices.Clone(f.names), list: slices.Clone(f.list)}
	maps.Copy(more.numbers, f.numbers)
	for _, name := range slices.Sorted(maps.Keys(indexers)) {
		if _, taken := f.numbers[name]; taken {
			return nil, fmt.Errorf("there is an index %q already", name)
		}
		if indexers[name] == nil {
			return nil, fmt.Errorf("the function of index %q is nil", name)
		}
		more.numbers[name] = len(more.names)
		more.names, more.list = append(more.names, name), append(more.list, indexers[name])
	}
	return more, nil
}

// number returns the number of an index, or an error if there is no such index.
func (f *functions) number(name string) (int, error) {
	n, ok := f.numbers[name]
	if !ok {
		return 0, fmt.Errorf("there is no index %q", name)
	}
	return n, nil
}

// term is a value that an index function has returned.
type term struct {
	index int
	value string
}

// compare orders terms by index and then by value.
func (t term) compare(other term) int {
	return cmp.Or(cmp.Compare(t.index, other.index), cmp.Compare(t.value, other.value))
}

// evaluate calls the functions from number first on for obj. It appends their values to terms, in order and
// each once. A function that fails adds no values.
func (f *functions) evaluate(terms []term, first int, obj any) ([]term, []error) {
	var errs []error
	for n := first; n < len(f.list); n++ {
		values, err := f.call(n, obj)
		if err != nil {
			errs = append(errs, fmt.Errorf("index %q: %w", f.names[n], err))
			continue
		}
		from := len(terms)
		for _, value := range values {
			terms = append(terms, term{n, value})
		}
		if len(values) > 1 {
			slices.SortFunc(terms[from:], term.compare)
			terms = terms[:from+len(slices.Compact(terms[from:]))]
		}
	}
	return terms, errs
}

// call calls a function. It returns a panic of the function as an error, because the panic must not end the
// writer.
func (f *functions) call(n int, obj any) (values []string, err error) {
	defer func() {
		if r := recover(); r != nil {
			values, err = nil, fmt.Errorf("the function panics: %v", r)
		}
	}()
	return f.list[n](obj)
}
