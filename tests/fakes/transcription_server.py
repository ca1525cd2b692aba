"""A fake of OpenAI's transcription API on a loopback port, written from its public reference; it validates requests.

It "hears" the text that follows `says:` in a recording.
"""

from tests.fakes.images_server import ImagesHandler, ImagesServer, Received

FORMATS = (".flac", ".mp3", ".mp4", ".mpeg", ".mpga", ".m4a", ".ogg", ".wav", ".webm")


class TranscriptionHandler(ImagesHandler):
    def complain(self, received: Received) -> str | None:
        if received.path != "/v1/audio/transcriptions":
            return f"Invalid URL (POST {received.path})"
        if {part.name for part in received.parts} - {"file", "model", "language", "response_format"}:
            return "Unknown parameter"
        files = received.files("file")
        if len(files) != 1 or not files[0].file_name.endswith(FORMATS):
            return f"Invalid file format. Supported formats: {FORMATS}"
        return None if received.text("model") else "you must provide a model parameter"

    def fulfil(self, received: Received) -> None:
        said = received.files("file")[0].content.partition(b"says:")[2]
        self.answer_json(200, {"text": said.decode()})


class TranscriptionServer(ImagesServer):
    handler = TranscriptionHandler
