package k1s0

import (
	_ "embed"
	"encoding/json"
	"fmt"
	"net/http"
	"sync"

	"gopkg.in/yaml.v3"
)

//go:embed openapi.yaml
var openapiYAML []byte

// OpenAPI is the OpenAPI 3.1 document of the REST API, as JSON. The caller must not change it.
var OpenAPI = sync.OnceValue(func() []byte {
	var document any
	if err := yaml.Unmarshal(openapiYAML, &document); err != nil {
		panic(fmt.Sprintf("k1s0: the embedded OpenAPI document: %v", err)) // a test reads it
	}
	text, err := json.Marshal(document)
	if err != nil {
		panic(fmt.Sprintf("k1s0: the embedded OpenAPI document: %v", err))
	}
	return text
})

func (s *Service) restDocument(c *call) error {
	c.header().Set("Content-Type", "application/json")
	c.header().Set("Cache-Control", "public, max-age=300")
	c.writer.WriteHeader(http.StatusOK)
	_, _ = c.writer.Write(OpenAPI()) // a client that has gone needs no document
	return nil
}
