package main

import (
	"fmt"
	"image/color"
	"io"
	"math"
	"regexp"
	"strconv"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgsvg"
)

// panel is a part of the plot. It shows ns per event against the number of watchers.
type panel struct {
	title string
	lines []line
}

type line struct {
	name   string
	color  color.Color
	dashed bool
	points plotter.XYs
}

// These colours differ clearly on white, in print and for colour-blind readers.
var (
	orange = color.RGBA{R: 0xd5, G: 0x5e, A: 0xff}
	blue   = color.RGBA{G: 0x72, B: 0xb2, A: 0xff}
	green  = color.RGBA{G: 0x9e, B: 0x73, A: 0xff}
)

var lineColors = map[string]color.Color{clientGo.name: orange, deltaFIFO.name: blue, realFIFO.name: green}

// panels returns the panels for the results that can be plotted.
func panels(results []result) []panel {
	var all []panel
	for _, r := range results {
		if r.err != nil || r.section.name != wholeWayName && r.section.name != distributionName {
			continue
		}
		p := panel{title: r.section.title}
		for i, s := range sides {
			l := line{name: s.name, color: lineColors[s.name], points: points(r, i), dashed: s == deltaFIFO}
			if r.section.oneQueue && i > 0 {
				l.name = "this library"
			}
			if !r.section.oneQueue || s != deltaFIFO {
				p.lines = append(p.lines, l)
			}
		}
		all = append(all, p)
	}
	return all
}

var watchersOf = regexp.MustCompile(`, (\d+) watchers?$`)

// points returns a side's ns per event by the number of watchers.
func points(r result, side int) (xys plotter.XYs) {
	for _, f := range r.rows {
		match := watchersOf.FindStringSubmatch(f.name)
		if match == nil || f.unit != "ns/event" && f.unit != perWatcher {
			continue
		}
		watchers, _ := strconv.ParseFloat(match[1], 64) // the expression matches only digits
		ns := median(f.samples[side])
		if f.unit == perWatcher {
			ns *= watchers
		}
		if ns > 0 { // the axis is logarithmic
			xys = append(xys, plotter.XY{X: watchers, Y: ns})
		}
	}
	return xys
}

const (
	panelWidth, panelHeight = 13 * vg.Centimeter, 10 * vg.Centimeter
	margin                  = 4 * vg.Millimeter
)

// writePlot draws the panels side by side, as SVG.
func writePlot(w io.Writer, all []panel) error {
	size := vg.Rectangle{Max: vg.Point{X: panelWidth * vg.Length(len(all)), Y: panelHeight}}
	canvas := vgsvg.New(size.Max.X, size.Max.Y)
	canvas.SetColor(color.White) // the margins of the panels are transparent, and the page may be black
	canvas.Fill(size.Path())
	for i, p := range all {
		drawn, err := p.plot()
		if err != nil {
			return fmt.Errorf("plotting %q: %w", p.title, err)
		}
		at := vg.Point{X: panelWidth * vg.Length(i)}
		whole := draw.Canvas{Canvas: canvas, Rectangle: vg.Rectangle{Min: at, Max: at.Add(vg.Point{X: panelWidth, Y: panelHeight})}}
		drawn.Draw(draw.Crop(whole, margin, -margin, margin, -margin))
	}
	_, err := canvas.WriteTo(w)
	return err
}

// plot draws the panel. Both axes are logarithmic.
func (p panel) plot() (*plot.Plot, error) {
	drawn := plot.New()
	drawn.Title.Text, drawn.X.Label.Text, drawn.Y.Label.Text = p.title, "watchers", "ns per event"
	drawn.X.Scale, drawn.Y.Scale = plot.LogScale{}, plot.LogScale{}
	drawn.X.Tick.Marker, drawn.Y.Tick.Marker = plot.ConstantTicks(decades(1000)), plot.ConstantTicks(decades(1e7))
	drawn.X.Padding, drawn.Y.Padding, drawn.Legend.Padding = 0, 0, vg.Points(3)
	for _, style := range []*draw.TextStyle{&drawn.Title.TextStyle, &drawn.X.Label.TextStyle, &drawn.Y.Label.TextStyle, &drawn.X.Tick.Label, &drawn.Y.Tick.Label, &drawn.Legend.TextStyle} {
		style.Font.Variant = "Sans"
	}
	drawn.Legend.Top, drawn.Legend.Left = true, true
	grid := plotter.NewGrid()
	grid.Vertical.Color, grid.Horizontal.Color = color.Gray{Y: 0xdd}, color.Gray{Y: 0xdd}
	drawn.Add(grid)
	for _, l := range p.lines {
		if len(l.points) == 0 {
			continue
		}
		through, dots, err := plotter.NewLinePoints(l.points)
		if err != nil {
			return nil, err
		}
		through.Color, through.Width = l.color, vg.Points(2)
		if l.dashed {
			through.Dashes = []vg.Length{vg.Points(6), vg.Points(3)}
		}
		dots.Color, dots.Shape, dots.Radius = l.color, draw.CircleGlyph{}, vg.Points(3)
		drawn.Add(through, dots)
		drawn.Legend.Add(l.name, through, dots)
	}
	// The Y axis covers whole decades, so the plots of two runs can be laid over each other.
	drawn.Y.Min, drawn.Y.Max = math.Pow(10, math.Floor(math.Log10(drawn.Y.Min))), math.Pow(10, math.Ceil(math.Log10(drawn.Y.Max)))
	return drawn, nil
}

// decades returns a tick for every power of ten up to most.
func decades(most float64) (ticks []plot.Tick) {
	for v := 1.0; v <= most; v *= 10 {
		ticks = append(ticks, plot.Tick{Value: v, Label: strconv.FormatFloat(v, 'f', 0, 64)})
	}
	return ticks
}
