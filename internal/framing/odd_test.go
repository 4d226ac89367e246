package framing_test

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"runtime"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
)

// An oddBody is a body in JSON. Some words stand for parts of it; see oddWords.
type oddBody struct {
	body string
	// For each client how many objects are tapped, or x if the list is a Misfit.
	want string
}

func (c client) oddWords() *strings.Replacer {
	typ := fmt.Sprintf(`"apiVersion":%q,"kind":"%s`, c.apiVersion, c.kind)
	item := func(name string) string { return `"metadata":{"name":"` + name + `","labels":{"a\"]}":"}\\\"{[,é"}}}` }
	return strings.NewReplacer( // the first one that fits wins
		"$add", `{"type":"ADDED","object":`, "$good", `{"type":"ADDED","object":{`+typ+`",`+item("o")+`}`,
		"$list", typ+`List"`, "$kind", fmt.Sprintf(`"kind":"%sList"`, c.kind), "$version", fmt.Sprintf(`"apiVersion":%q`, c.apiVersion),
		"$meta", `"metadata":{"resourceVersion":"7"}`,
		"$a", `{`+item("a"), "$b", `{`+item("b"), "$typed", `{`+typ+`",`+item("c"),
		"$object", `{`+typ+`",`+item("o"), "$type", typ+`"`,
		"$deep", strings.Repeat(`{"a":[`, 4999)+strings.Repeat(`]}`, 4999),
		"$nested", strings.Repeat(`{"a":[`, 4000)+strings.Repeat(`]}`, 4000),
	)
}

var oddLists = []oddBody{
	{``, "000"}, {`null`, "000"}, {`{`, "000"}, {`{}`, "000"}, {`[]`, "000"}, {"\x00{}", "000"}, {`<html>`, "000"},
	{`{"kind":"Status","apiVersion":"v1","status":"Failure","message":"no","code":500}`, "000"},
	{`{"kind":"Status","apiVersion":"v1","items":[$a]}`, "010"},
	{`{"kind":"Table","apiVersion":"meta.k8s.io/v1","columnDefinitions":[],"rows":[{"cells":[1]}],$meta}`, "000"},
	{`{"kind":"SecretList","apiVersion":"v1","items":[$a,$b]}`, "020"},
	{`{"apiVersion":"v1","items":[$a,$b],"kind":"SecretList"}`, "x2x"}, {`{$list,"items":[$a],"kind":"SecretList"}`, "xxx"},
	{`{$list,"items":[$a],"KIND":"SecretList"}`, "xxx"}, {`{$list,"items":[$a],"apiVersion":"v2"}`, "xxx"},
	{`{"apiVersion":"v2",$kind,"items":[$a]}`, "010"}, {`{"items":[$a],"apiVersion":"v2",$kind}`, "x1x"},
	{`{"items":[$a],$meta}`, "xxx"}, {`{"items":[],$meta}`, "000"}, {`{$list,$meta}`, "000"},
	{`{$list,"items":null,$meta}`, "000"}, {`{$list,"items":{},$meta}`, "000"}, {`{$list,"items":[null]}`, "000"},
	{`{$list,"items":[$a,null]}`, "xxx"}, {`{$list,"items":[5,$a]}`, "000"}, {`{$list,"items":[$a,$b],"items":[$b]}`, "xxx"},
	{`{$list,"items":[$a],"items":null}`, "xxx"}, {`{$list,"items":null,"items":[$b]}`, "111"},
	{`{$list,"items":[{$a}{$b}]}`, "000"}, {`{$list,"items":[$a$b]}`, "xxx"}, {`{$list,"items":[$a,]}`, "xxx"},
	{`{$list,"items":[,$a]}`, "000"}, {`{$list,"items":[$a],}`, "111"}, {`{,$list,"items":[$a]}`, "111"},
	{`{$list "items":[$a]}`, "111"}, {`{$list,"items":[$a]} trailing`, "111"}, {`{$list,"items":[$a]}{$list}`, "111"},
	{`{$list,"items":[$a}]}`, "xxx"}, {`{$list,"items":[{"a":]]}`, "000"},
	{`{$list,"items":[$a,{"metadata":{"name":"x"},"a":nul}]}`, "xxx"},
	{" {\n\"items\" : [ $a , $b\t] ,\r\n $list ,$meta } \n", "222"},
	{`{"i\u0074ems":[$a],"k\u0069nd":"PodList",$version}`, "11x"},
	{`{$list,$meta,"more":{"items":[5,{"a":["]"]}]},"x":-1.5e3,"y":true,"items":[$a]}`, "111"},
	{`{$list,"items":[$a],$meta,$meta}`, "111"}, {`{$list,"metadata":5,"items":[$a]}`, "111"},
	{`{$list,"items":[{"metadata":{"name":"d"},"spec":$nested}]}`, "111"},
	{`{$list,"items":[{"metadata":{"name":"d"},"x":$deep}]}`, "000"},
	// Items without a type get that of their list, and stay in order.
	{`{$list,"items":[$a,$typed,$b]}`, "333"}, {`{"items":[$a,$typed,$b],$list}`, "333"},
	{`{"items":[$typed,$a,$typed,{"kind":"Half"},{"apiVersion":"half"},$b],$list}`, "666"},
	{`{"apiVersion":"v1","items":[$a,$typed],"kind":5}`, "xxx"}, {`{$version,"items":[$typed],"kind":null}`, "xxx"},
	{"{\"kind\":\"P\xffList\",\"apiVersion\":\"v\\u00311\",\"items\":[$a]}", "010"},
}

var oddWatches = []oddBody{
	{``, "000"}, {" \n ", "000"}, {`null`, "000"}, {`5 $good`, "000"}, {`<html>`, "000"}, {"\x00", "000"}, {`$good`, "111"},
	{"\n\t $good \r\n\n $good\n ", "222"}, {`$good{"type":"MODIFIED","object":$object}garbage`, "222"},
	{`$add$object]`, "000"}, {`$good$add$object]$good`, "111"}, {`$add$object]}`, "000"},
	{`$good,{"type":"MODIFIED","object":$object}`, "111"}, {`$good]{"type":"MODIFIED","object":$object}`, "111"},
	{`{"type":"BOOKMARK","object":$object}$good{"type":"ERROR","object":{"kind":"Status","apiVersion":"v1","code":410}}$good`, "222"},
	{`{"type":"STRANGE","object":$object}$good`, "000"}, {`{"type":"","object":$object}`, "000"},
	{`{"object":$object,"type":"ADDED"}`, "111"}, {`{ "type" : "ADDED", "object" : $object }`, "111"},
	{`$add$object,"more":[1]}{"more":{},"object":$object,"type":"MODIFIED"}`, "111"},
	{`$add$object,"type":"DELETED"}`, "000"}, {`{"object":$object,"type":"ADDED","object":{}}`, "000"},
	{`{"object":$object,"type":"ADDED","kind":"Status","apiVersion":"v1"}$good`, "000"},
	{`{$type,"type":"ADDED","object":$object}$good`, "000"}, {`{"object":$object,"type":"ADDED","kind":5}$good`, "000"},
	{`{"kind":"WatchEvent",$version,"type":"ADDED","object":$object}$good`, "111"},
	{`{"object":{},"type":"ADDED","object":$object}`, "111"}, {`$add$object,"object":null}`, "000"},
	{`{"TYPE":"ADDED","OBJECT":$object}`, "000"}, {`$add$object,"TYPE":"DELETED"}`, "000"},
	{`{"type":"ADDED"}`, "000"}, {`$addnull}`, "000"}, {`$add[]}`, "000"},
	{`$add"x"}`, "000"}, {`$add{}}`, "000"}, {`$add$a}`, "000"}, {`$add{$version}}`, "000"}, {`$add{"kind":"Pod"}}`, "000"},
	{`$add{"kind":"Pod","apiVersion":"/"}}`, "000"}, {`$add{"kind":"Pod","apiVersion":"/v1"}}`, "110"},
	{`$add{"kind":"Pod","apiVersion":"a/b/c"}}`, "000"}, {`$add{"kind":"Pod","apiVersion":5}}`, "000"},
	{`$add{"kind":"Secret","apiVersion":"v1"}}`, "010"}, {`$add{"kind":"Status","apiVersion":"v1","code":5}}`, "000"},
	{`$add{"kind":"Status","apiVersion":"example.com/v1","code":5}}`, "000"},
	{`$add{"kind":"APIGroup","apiVersion":"example.com/v2","x":5}}`, "000"},
	{`$add{"kind":"APIService","apiVersion":"v1","x":5}}`, "010"},
	{`$add{"kind":"ListOptions","apiVersion":"v1","limit":5}}`, "000"},
	{`$add{"kind":"WatchEvent","apiVersion":"__internal"}}`, "000"},
	{`$add{$type,"items":[$a],"metadata":{"name":"x"}}}`, "111"}, {`$add$object`, "000"}, {`$add{$type,"x":$nested}}`, "111"},
	{`$add{$type,"x":$deep}}`, "000"}, {`$add{$type,"x":[}}$good`, "000"}, {`$add{$type,"x":nul}}$good`, "000"},
}

func TestOddJSON(t *testing.T) {
	for k, c := range []client{inMemory[1], inMemory[2], inMemory[4]} {
		for live, bodies := range map[bool][]oddBody{false: oddLists, true: oddWatches} {
			for _, o := range bodies {
				t.Run(fmt.Sprintf("%s/%.80s", c.name, o.body), func(t *testing.T) {
					checkOdd(t, c, live, c.oddWords().Replace(o.body), o.want[k:k+1])
				})
			}
		}
	}
}

// field returns a field of a protobuf message. Its length is that of the parts.
func field(number int, parts ...string) string {
	payload := strings.Join(parts, "")
	return long(number, len(payload)) + payload
}

// long returns the beginning of a field that claims a length.
func long(number, length int) string {
	return string(binary.AppendUvarint(binary.AppendUvarint(nil, uint64(number<<3|2)), uint64(length)))
}

// oddBinary returns odd lists or watches in protobuf. The letters of want are those of an oddBody.
func (c client) oddBinary(live bool) []oddBody {
	const magic, number = "k8s\x00", "\x18\x05"
	object := string(must(c.object(0).(protobufMessage).Marshal()))
	typ := func(version, kind string) string { return field(1, field(1, version), field(2, kind)) }
	item, meta := field(2, object), field(1, field(2, "7"))
	list := typ(c.apiVersion, c.kind+"List")
	if !live {
		return []oddBody{

			{"", "0"}, {"k8s", "0"}, {magic, "0"}, {"k8s\x01" + list + field(2, meta, item), "0"}, {magic + field(2, meta, item), "0"},
			{magic + field(2, meta, item) + list, "0"}, {magic + list, "0"},
			{magic + typ("v1", "SecretList") + field(2, meta, item), "0"},
			{magic + typ("v7", c.kind+"List") + field(2, meta, item), "0"},
			{magic + typ("v1", "Status") + field(2, field(2, "Failure"), field(3, "no")), "0"},
			{magic + list + list + field(2, meta, item), "0"},
			{magic + field(1, field(2, c.kind+"List"), field(1, c.apiVersion)) + field(2, item), "1"},
			{magic + field(1, list[2:], field(3, "more")) + field(2, item), "0"}, {magic + list + field(2, meta, item), "1"},
			{magic + list + field(2, meta, item) + field(3) + field(4), "1"},
			{magic + list + field(2, meta, item) + field(4, "json"), "1"},
			{magic + list + field(2, meta, item) + typ("v1", "SecretList"), "x"},
			{magic + list + field(2, meta, item) + field(2, meta), "x"}, {magic + list + field(2, meta, item) + field(9, "more"), "x"},
			{magic + list + field(2, meta, item) + "garbage", "x"}, {magic + list + field(2), "0"},
			{magic + list + field(2, meta, field(9, "more"), item, field(200, "more"), item), "2"},
			{magic + list + field(2, item, meta, field(1, field(2, "8"), field(3, "next"))), "1"},
			{magic + list + field(2, meta, item, number, item), "x"}, {magic + list + field(2, meta, number, item), "0"},
			{magic + list + field(2, meta, item, "\x10\x05"), "x"}, {magic + list + field(2, meta, item, "\x00\x00"), "x"},
			{magic + list + field(2, meta, field(2)), "1"}, {magic + list + field(2, meta, "\x92\x80\x00\x80\x00", item), "2"},
			{magic + list + field(2, meta, field(2, "\xff")), "0"}, {magic + list + field(2, meta, item, field(2, "\xff"), item), "x"},
			{magic + list + field(2, meta, item, long(2, 9), "less"), "x"},
			{magic + list + field(2, meta, item, long(2, 1<<40), "less"), "x"},
			{magic + list + field(2, meta, item, long(9, 1<<62)), "x"}, {magic + list + long(2, len(item)+9) + item, "x"},
			{magic + list + long(2, 1<<40) + item, "x"}, {magic + list + long(2, 1<<62) + item, "0"},
			{magic + list + long(2, 1<<40) + long(2, 60<<20) + "less", "0"}, {magic + long(1, 1<<33) + "less", "0"},
			{magic + long(1, 60<<20) + "less", "0"},
		}
	}
	envelope := func(parts ...string) string { return field(2, field(1, magic, strings.Join(parts, ""))) }
	event := func(parts ...string) string { return string(frame([]byte(strings.Join(parts, "")))) }
	one := typ(c.apiVersion, c.kind)
	good := event(field(1, "ADDED"), envelope(one, field(2, object)))
	return []oddBody{
		{"", "0"},
		{"\x00\x00", "0"}, {good + "\x00\x00\x00\x00" + good, "1"}, {good + "\x00\x00\x00", "1"},
		{good + "\x00\x00\x01\x00" + "less", "1"}, {good + "\xff\xff\xff\xff" + "less", "1"},
		{good + "\x00\xff\xff\xff" + "less", "1"}, {good + "\x01\x00\x00\x00" + "less", "1"},
		{good + event(field(1, "BOOKMARK"), envelope(one, field(2, object))) + good, "2"},
		{good + event(field(1, "ERROR"), envelope(typ("v1", "Status"), field(2, field(3, "gone")))) + good, "2"},
		{good + event(field(1, "STRANGE"), envelope(one, field(2, object))) + good, "1"},
		{good + event(envelope(one, field(2, object))) + good, "1"}, {good + event(field(1, "ADDED")) + good, "1"},
		{good + event(field(1, "ADDED"), field(2)) + good, "1"}, {good + event(field(1, "ADDED"), field(2, field(1))) + good, "1"},
		{good + event(field(1, "ADDED"), field(2, field(1, magic))) + good, "1"},
		{good + event(field(1, "ADDED"), field(2, field(1, "k8s{}"))) + good, "1"},
		{good + event(field(1, "ADDED"), field(2, field(1, "{}"), field(1, magic, one))) + good, "2"},
		{good + event(field(1, "ADDED"), envelope(typ("v1", "Nothing"), field(2, object))) + good, "1"},
		{good + event(field(1, "ADDED"), envelope(typ("v7", c.kind), field(2, object))) + good, "1"},
		{good + event(field(1, "ADDED"), envelope(field(2, object))) + good, "1"},
		{good + event(field(1, "ADDED"), envelope(one)) + good, "3"},
		{event(field(1, "ADDED"), envelope(one, field(2, object), field(4, "json"))) + good, "2"},
		{event(field(1, "ADDED"), envelope(one, field(2, object), field(9, "more"))) + good, "1"},
		{event(field(1, "ADDED"), envelope(one, field(2, object), field(2))) + good, "1"},
		{event(field(1, "ADDED"), envelope(field(2, object), one)) + good, "2"},
		{event(envelope(one, field(2, object)), field(1, "DELETED")) + good, "2"},
		{event(field(1, "ADDED"), envelope(one, field(2, object)), field(1, "DELETED")) + good, "1"},
		{event(field(1, "ADDED"), envelope(one, field(2, object)), field(9, "more")) + good, "1"},
		{event(field(1, "ADDED"), envelope(one, field(2, object)), number) + good, "1"},
		{event(field(1, "ADDED"), envelope(one, field(2, "\xff"))) + good, "0"},
		{event(field(1, "ADDED"), envelope(one, long(2, 1<<40))) + good, "0"},
		{event(field(1, "ADDED"), long(2, 1<<40)) + good, "0"}, {event(field(1, "ADDED", long(2, 1<<40))) + good, "0"},
	}
}

func TestOddBinary(t *testing.T) {
	for _, c := range []client{inMemory[0], inMemory[3]} {
		for _, live := range []bool{false, true} {
			for k, o := range c.oddBinary(live) {
				t.Run(fmt.Sprintf("%s/live=%t/%d", c.name, live, k), func(t *testing.T) {
					var before, after runtime.MemStats
					runtime.ReadMemStats(&before)
					checkOdd(t, c, live, o.body, o.want)
					runtime.ReadMemStats(&after)
					if n := after.TotalAlloc - before.TotalAlloc; n > 8<<20 {
						t.Errorf("%d bytes allocated for %d", n, len(o.body))
					}
				})
			}
		}
	}
}

// checkOdd compares the results of a body, and how many objects of it are tapped.
func checkOdd(t *testing.T, c client, live bool, body, want string) {
	t.Helper()
	for k, read := range readers {
		_, tap := c.both(t, live, func() io.Reader { return read(strings.NewReader(body)) })
		got := fmt.Sprint(tap.Count())
		if tap.Misfit() {
			got = "x"
		}
		if got != want {
			t.Errorf("%s objects tapped, want %s", got, want)
		}
		if t.Failed() {
			t.Fatalf("by reader %d", k)
		}
	}
}

// TestLargeEvents has events of the size that client-go accepts, and larger ones.
func TestLargeEvents(t *testing.T) {
	const limit = 16 << 20
	for _, c := range inMemory[:2] {
		small := c.event("ADDED", c.encode(c.apiVersion, c.kind, c.object(0)))
		for _, over := range []int{0, 1} {
			var large []byte
			for pad := limit - 4<<10; ; {
				pod := c.object(1).(*corev1.Pod)
				pod.Annotations = map[string]string{"x": strings.Repeat("x", pad)}
				large = c.event("ADDED", c.encode(c.apiVersion, c.kind, pod))
				frame := len(large) - 1 // without the line feed
				if c.binary {
					frame = len(large) - 4
				}
				if frame == limit+over {
					break
				}
				pad += limit + over - frame
			}
			body := bytes.Join([][]byte{small, large, small}, nil)
			got, tap := c.both(t, true, func() io.Reader { return bytes.NewReader(body) })
			switch {
			case over == 0 && (tap.Count() != 3 || len(got.events) != 3),
				over > 0 && (tap.Count() != 1 || !strings.Contains(text(got.events[1]), "longer than maximum")):
				t.Errorf("%s, %d bytes over the limit: %d tapped, %d events", c.name, over, tap.Count(), len(got.events))
			}
		}
	}
}
