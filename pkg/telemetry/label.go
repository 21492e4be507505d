package telemetry

import "unicode/utf8"

// maxLabelBytes bounds every label that is not a constant of the code.
const maxLabelBytes = 256

// label makes text a label: valid UTF-8 of bounded length.
func label(text string) string {
	if len(text) <= maxLabelBytes && utf8.ValidString(text) {
		return text
	}
	return string(appendLabel(make([]byte, 0, maxLabelBytes), text))
}

// appendLabel appends text to what is a label already, each invalid byte as U+FFFD, as far as the bound allows.
func appendLabel(to []byte, text string) []byte {
	for _, r := range text { // an invalid byte is utf8.RuneError here
		if len(to)+utf8.RuneLen(r) > maxLabelBytes {
			break
		}
		to = utf8.AppendRune(to, r)
	}
	return to
}
