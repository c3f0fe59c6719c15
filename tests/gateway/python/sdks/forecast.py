"""What a structured answer should be."""

import pydantic


class Place(pydantic.BaseModel):
    city: str
    zone: str


class Forecast(pydantic.BaseModel):
    """The weather at a place."""

    place: Place
    degrees: int
    sunny: bool
