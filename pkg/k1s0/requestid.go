package k1s0

import (
	"strings"

	"github.com/google/uuid"
)

// requestIDHeader names a request in logs, errors and the audit table, over HTTP and (in small letters) gRPC.
const requestIDHeader = "X-Request-Id"

// maxHeaderID bounds a request ID that is taken over, in bytes.
const maxHeaderID = 128

// requestID takes over a client's request ID if it can stand in a log as it is; else it makes one.
func requestID(sent []string) string {
	if len(sent) == 1 && saneID(sent[0]) {
		return sent[0]
	}
	return uuid.NewString()
}

func saneID(id string) bool {
	const sane = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-._~:/+=@#"
	return id != "" && len(id) <= maxHeaderID && strings.Trim(id, sane) == ""
}

// isUUID tells whether an ID can be one of the rule store's.
func isUUID(id string) bool {
	const length = 36
	_, err := uuid.Parse(id)
	return err == nil && len(id) == length
}
