package main

// phase holds the measurements of an operator for one part of the work. Times are in seconds.
// Memory is in bytes, measured at the end of the part.
type phase struct {
	Wall, CPU, Peak, Anon, Heap float64
	Reconciles, Writes, Refused int
}

// figures holds the measurements of one operator in one round.
type figures struct{ Create, Restart, Move, Idle phase }

// part is a part of the table.
type part struct {
	title string
	of    func(figures) phase
}

var parts = []part{
	{"start: all must be created", func(f figures) phase { return f.Create }},
	{"restart: all is done already", func(f figures) phase { return f.Restart }},
	{"then all Websites get another host", func(f figures) phase { return f.Move }},
	{"then nothing happens", func(f figures) phase { return f.Idle }},
}

// row is a row of each part of the table.
type row struct {
	name, unit string
	of         func(phase) float64
}

const mebi = 1 << 20

var rows = []row{
	{"until all is done", "s", func(p phase) float64 { return p.Wall }},
	{"CPU time", "s", func(p phase) float64 { return p.CPU }},
	{"most memory ever resident", "MiB", func(p phase) float64 { return p.Peak / mebi }},
	{"anonymous memory at the end", "MiB", func(p phase) float64 { return p.Anon / mebi }},
	{"live heap afterwards", "MiB", func(p phase) float64 { return p.Heap / mebi }},
	{"reconciles", "", func(p phase) float64 { return float64(p.Reconciles) }},
	{"write requests", "", func(p phase) float64 { return float64(p.Writes) }},
	{"of these refused", "", func(p phase) float64 { return float64(p.Refused) }},
}
