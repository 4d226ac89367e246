package page_test

import (
	"bytes"
	"image"
	"image/color"
	"image/draw"
	"image/png"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"
)

func TestThePictureOfThePageIsTelling(t *testing.T) {
	t.Parallel()
	const scale = 2
	file := *screenshot
	if file == "" {
		file = filepath.Join(t.TempDir(), "page.png")
	}
	p := newTab(t)
	p.resize(1200, 600, scale)
	p.prefer("light")
	p.do(chromedp.Navigate(newTroubled(t)))
	telling := func(c content) bool {
		return inTrouble(c) && c.watcher("dns").state() == "behind" && c.watcher("audit").state() == "blocked"
	}
	p.until("all problems show", telling)
	if *screenshot != "" {
		p.untilFull(telling)
	}
	picture, err := png.Decode(bytes.NewReader(ask(p, chromedp.FullScreenshot(100))))
	if err != nil {
		t.Fatal(err)
	}
	var data bytes.Buffer
	encoder := png.Encoder{CompressionLevel: png.BestCompression}
	if err := encoder.Encode(&data, fewColors(picture)); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, data.Bytes(), 0o644); err != nil {
		t.Fatal(err)
	}
	size := picture.Bounds().Size()
	t.Logf("%d bytes, %v", data.Len(), size)
	if data.Len() < 20_000 || data.Len() > 150_000 || size.X != 1200*scale || size.Y < 500*scale || size.Y > 1500*scale {
		t.Errorf("the picture has %d bytes and is %v", data.Len(), size)
	}
}

// fewColors returns the picture in its 256 most frequent colors, which makes the file a third
// as large. The other colors occur only at the edges of letters, and are not missed.
func fewColors(picture image.Image) *image.Paletted {
	bounds := picture.Bounds()
	all := image.NewRGBA(bounds)
	draw.Draw(all, bounds, picture, bounds.Min, draw.Src)
	frequency := map[color.RGBA]int{}
	for y := bounds.Min.Y; y < bounds.Max.Y; y++ {
		for x := bounds.Min.X; x < bounds.Max.X; x++ {
			frequency[all.RGBAAt(x, y)]++
		}
	}
	colors := slices.SortedFunc(maps.Keys(frequency), func(a, b color.RGBA) int { return frequency[b] - frequency[a] })
	few := image.NewPaletted(bounds, nil)
	index := map[color.RGBA]uint8{}
	for n, c := range colors {
		if n < 256 {
			few.Palette = append(few.Palette, c)
		}
		index[c] = uint8(few.Palette.Index(c))
	}
	for y := bounds.Min.Y; y < bounds.Max.Y; y++ {
		for x := bounds.Min.X; x < bounds.Max.X; x++ {
			few.SetColorIndex(x, y, index[all.RGBAAt(x, y)])
		}
	}
	return few
}

// untilFull waits until the charts show a whole minute.
func (p *tab) untilFull(telling func(content) bool) {
	p.t.Helper()
	began := func(c content) float64 {
		x, _, _ := strings.Cut(c.watcher("dns").Line, ",")
		seconds, err := strconv.ParseFloat(x, 64)
		if err != nil {
			return 60
		}
		return seconds
	}
	for at := 60.0; at > 2; {
		c := p.until("the charts grow", func(c content) bool { return began(c) < at-1 || began(c) <= 2 })
		at = began(c)
	}
	p.until("all problems still show", telling)
}
