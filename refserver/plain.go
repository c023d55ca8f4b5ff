package refserver

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

// maxText bounds the text of an error in an answer, in bytes. Some of it is an engine's or a registry's own words, which may be a whole
// page.
const maxText = 2 << 10

// plain returns text for a client, who may print it on a terminal: on one line, without control characters, and no longer than maxText.
func plain(text string) string {
	const cutOff = "…"
	text = strings.Map(func(r rune) rune {
		if unicode.IsPrint(r) {
			return r
		}
		return ' '
	}, text)
	if len(text) <= maxText {
		return text
	}
	end := maxText - len(cutOff)
	for !utf8.RuneStart(text[end]) {
		end--
	}
	return text[:end] + cutOff
}
